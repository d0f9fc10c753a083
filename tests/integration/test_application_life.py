"""An application that nobody refers to any more is gone, although the module-level `AsyncJobs` stays."""

import gc
import weakref

import pytest
from flask import Flask
from flask_smorest import Api
from sqlalchemy import create_engine

from flask_async_jobs import AsyncJobs, ConfigurationError
from tests.waiting import wait_until

OWN_API = {
    "API_TITLE": "Shop",
    "API_VERSION": "1",
    "OPENAPI_VERSION": "3.1.0",
    "OPENAPI_URL_PREFIX": "/docs",
    "OPENAPI_JSON_PATH": "openapi.json",
}


@pytest.fixture
def jobs():
    jobs = AsyncJobs()
    jobs.register("quick", lambda: 1)
    return jobs


def worked(jobs: AsyncJobs, url: str, own_api: bool) -> Flask:
    """Return an application that has answered requests, run a job and stopped."""
    app, engine = Flask("shop"), create_engine(url)
    app.config.update(OWN_API if own_api else {}, ASYNC_JOBS_PROCESSING_POLL_INTERVAL=0.1)
    jobs.init_app(app, engine=engine, api=Api(app) if own_api else None)
    client = app.test_client()
    job = client.post("/jobs/quick").json["jobId"]
    wait_until(lambda: client.get(f"/jobs/{job}/status").json["status"] == "COMPLETED")
    assert client.get(f"/jobs/{job}/events").text
    assert client.get("/docs/openapi.json").status_code == 200
    assert jobs.shutdown(app=app)
    engine.dispose()
    return app


@pytest.mark.parametrize("own_api", [False, True], ids=["without an Api", "with an Api"])
def test_an_application_is_not_kept_by_its_extension(jobs, database_url, own_api):
    applications = [weakref.ref(worked(jobs, database_url, own_api)) for _ in range(3)]
    wait_until(lambda: gc.collect() >= 0 and not any(reference() for reference in applications))


@pytest.mark.parametrize("own_api", [False, True], ids=["without an Api", "with an Api"])
def test_an_application_that_is_there_describes_every_type(jobs, own_api):
    app = Flask("shop")
    app.config.update(OWN_API if own_api else {}, TESTING=True)
    jobs.init_app(app, engine=create_engine("sqlite://"), api=Api(app) if own_api else None)
    gc.collect()
    jobs.register("late", lambda: 1)
    paths = app.test_client().get("/docs/openapi.json").json["paths"]
    assert {"/jobs/quick", "/batches/quick", "/jobs/late", "/batches/late"} <= paths.keys()


def test_an_application_that_could_not_be_made_refuses_no_type(jobs):
    def init_app(api):
        app = Flask("shop")
        app.config.update(ASYNC_JOBS_RETENTION="PT1H", ASYNC_JOBS_FRESHNESS_ENABLED=True)
        jobs.init_app(app, engine=create_engine("sqlite://"), api=api)

    with pytest.raises(ConfigurationError, match="api="):
        init_app(Api())
    gc.collect()
    jobs.register("daily", lambda: 1, freshness="PT12H")
    with pytest.raises(ConfigurationError, match="daily"):
        init_app(None)
