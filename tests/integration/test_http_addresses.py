"""Where the routes are: prefixes, mounts, proxies, no routes at all, and no request."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, create_engine
from werkzeug.exceptions import NotFound
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.test import Client

from tests.integration.apps import PROBLEM, TestJobs, assert_problem, new_app, serving


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Engine]:
    engine = create_engine(sqlite_url)
    yield engine
    engine.dispose()


def test_the_prefixes_are_the_applications_choice(store: Engine) -> None:
    settings = {
        "URL_PREFIX": "/api/v1/tasks",
        "DOCS_URL_PREFIX": "/api/v1/docs",
        "BATCHES_URL_PREFIX": "/api/v1/lots",
    }
    with serving(TestJobs(), store, **settings) as site:
        location = site.ask("POST", "/api/v1/tasks/quick").location
        assert location.startswith("http://localhost/api/v1/tasks/")
        assert site.get(location).status_code == 200
        assert_problem(site.get("/api/v1/tasks/a/b"), 404, "not-found")
        sent = {"Idempotency-Key": "k"}
        batch = site.ask("POST", "/api/v1/lots/quick", json={"items": [{"itemId": "a"}]}, headers=sent).json
        for name in ("statusUrl", "itemsUrl"):
            assert batch[name].startswith("http://localhost/api/v1/lots/")
            assert site.get(batch[name]).status_code == 200
        assert "/api/v1/tasks/quick" in site.get("/api/v1/docs/openapi.json").json["paths"]
        assert site.get("/jobs/quick").content_type == site.get("/api/v1").content_type != PROBLEM


def test_urls_hold_where_the_application_is_mounted(store: Engine) -> None:
    with serving(TestJobs(), store) as site:
        client = Client(DispatcherMiddleware(NotFound(), {"/svc": site.app}))
        location = client.post("/svc/jobs/quick", base_url="https://api.example").location
        assert location.startswith("https://api.example/svc/jobs/")
        assert client.get(location).status_code == 200
        body, sent, public = {"items": [{"itemId": "a"}]}, {"Idempotency-Key": "k"}, "https://api.example"
        batch = client.post("/svc/batches/quick", json=body, headers=sent, base_url=public)
        urls = [batch.location, *(batch.json[name] for name in ("statusUrl", "itemsUrl", "eventsUrl"))]
        urls.append(client.get(batch.location, base_url=public).json["itemsUrl"])
        assert [url for url in urls if not url.startswith(f"{public}/svc/batches/")] == []
        assert client.get(batch.json["itemsUrl"]).status_code == 200
        problem = assert_problem(client.get("/svc/jobs/a%20b/status"), 404)
        assert problem["instance"] == "/svc/jobs/a%20b/status"


def test_forwarded_headers_count_only_behind_proxy_fix(store: Engine) -> None:
    sent = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "api.example", "X-Forwarded-Prefix": "/svc"}
    with serving(TestJobs(), store) as site:
        assert site.ask("POST", "/jobs/quick", headers=sent).location.startswith("http://localhost/jobs/")
        site.app.wsgi_app = ProxyFix(site.app.wsgi_app, x_proto=1, x_host=1, x_prefix=1)  # type: ignore[method-assign]
        assert site.ask("POST", "/jobs/quick", headers=sent).location.startswith("https://api.example/svc/jobs/")
        batch = site.batch("quick", '{"items": [{"itemId": "a"}]}', key="k", **sent).json
        for name in ("statusUrl", "itemsUrl", "eventsUrl"):
            assert batch[name].startswith("https://api.example/svc/batches/")


def test_without_routes_the_engine_stays_usable(store: Engine) -> None:
    with serving(TestJobs(), store, WEB_ENABLED=False, run=True) as site, site.app.app_context():
        submitted = site.jobs.submit("quick")
        assert (submitted.disposition, submitted.status_url, submitted.cancel_url) == ("created", None, None)
        assert site.jobs.get(submitted.job_id) is not None
        for path in ("/jobs/quick", f"/jobs/{submitted.job_id}/status", "/docs/", "/docs/openapi.json"):
            response = site.get(path)
            assert (response.status_code, response.content_type) == (404, "text/html; charset=utf-8")


def test_without_a_request_urls_are_relative_or_of_the_server_name(store: Engine) -> None:
    for config, root in (
        ({}, "/jobs/"),
        ({"APPLICATION_ROOT": "/svc"}, "/svc/jobs/"),
        ({"SERVER_NAME": "api.example", "PREFERRED_URL_SCHEME": "https"}, "https://api.example/jobs/"),
    ):
        with serving(TestJobs(), store, app=new_app(**config)) as site, site.app.app_context():
            submitted = site.jobs.submit("quick")
            assert submitted.cancel_url == f"{root}{submitted.job_id}"
            assert submitted.status_url == f"{root}{submitted.job_id}/status"
            with site.app.test_request_context(base_url="http://api.example"):
                assert site.jobs.submit("quick").status_url.startswith("http://api.example/")
