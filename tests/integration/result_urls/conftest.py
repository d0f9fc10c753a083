"""An application with a type for each form of `result_url`."""

import pytest

from flask_async_jobs import AsyncJobs, JobRepository
from tests.integration.processes import application
from tests.integration.result_urls.listings import FORMS, add_listing


@pytest.fixture
def jobs():
    """One type for each form, and one for each form that redirects."""
    jobs = AsyncJobs()
    for name, (form, _) in FORMS.items():
        jobs.register(name, lambda: {"listing": 17}, result_url=form)
        jobs.register(f"to_{name}", lambda: {"listing": 17}, result_url=form, redirect=True)
    jobs.register("plain", lambda: {"listing": 17})
    jobs.register("to_result", lambda: {"listing": 17}, redirect=True)
    jobs.register("nowhere", lambda: None, result_url=lambda job: None, redirect=True)
    return jobs


@pytest.fixture
def database_url(sqlite_url):
    """Where a result is does not depend on the database."""
    return sqlite_url


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


@pytest.fixture
def app(jobs, engine):
    app = application(jobs, engine, AUTO_START=False)
    add_listing(app)
    return app


@pytest.fixture
def client(app):
    return app.test_client()
