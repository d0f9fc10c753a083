"""Where the library ends: every error under its prefixes is its own problem, and outside nothing is changed."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, Response, abort
from sqlalchemy import Engine, create_engine

from tests.integration.apps import PROBLEM, UNKNOWN_ID, Site, TestJobs, assert_problem, new_app, serving
from tests.integration.batching import accepted

LOGGER = "flask_async_jobs"


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Engine]:
    engine = create_engine(sqlite_url)
    yield engine
    engine.dispose()


@pytest.fixture
def site(store: Engine, tmp_path: Path) -> Iterator[Site]:
    """The library in an application that answers everything itself."""
    with serving(TestJobs(owners=True), store, app=consumer(tmp_path)) as site:
        yield site


def consumer(folder: Path) -> Flask:
    """An application with pages, static files and handlers for every error."""
    (folder / "static").mkdir(exist_ok=True)
    (folder / "static" / "site.css").write_text("body {}")
    app = Flask("consumer", root_path=str(folder))
    app.config["TESTING"] = True
    app.add_url_rule("/other", "other", lambda: "other")
    app.add_url_rule("/folder/", "folder", lambda: "folder")
    app.add_url_rule("/merged/<path:rest>", "merged", lambda rest: rest)
    app.add_url_rule("/broken", "broken", lambda: 1 // 0)
    app.add_url_rule("/jobs-board", "board", lambda: "board")
    app.register_error_handler(404, lambda error: ("my 404", 404))
    app.register_error_handler(405, lambda error: ("my 405", 405))
    app.register_error_handler(Exception, lambda error: ("my error", 500))
    return app


# Inside


def test_every_error_is_a_problem_whatever_the_application_handles(site: Site) -> None:
    job_id = site.submit()
    for method, path, status, slug in (
        ("GET", "/jobs", 404, "not-found"),
        ("GET", "/jobs/", 404, "not-found"),
        ("GET", "/jobs/a/b/c", 404, "not-found"),
        ("DELETE", f"/jobs/{job_id}/nothing", 404, "not-found"),
        ("PUT", "/jobs/nothing", 404, "not-found"),
        ("GET", f"/jobs/{UNKNOWN_ID}", 404, "job-not-found"),
        ("POST", "/jobs/nothing", 400, "unknown-type"),
        ("GET", "/jobs/quick", 405, "method-not-allowed"),
        ("PUT", f"/jobs/{job_id}", 405, "method-not-allowed"),
        ("GET", f"/jobs/{job_id}/cancel", 405, "method-not-allowed"),
        ("GET", "/docs/nothing", 404, "not-found"),
        ("POST", "/docs/openapi.json", 405, "method-not-allowed"),
    ):
        assert assert_problem(site.ask(method, path), status, slug)["instance"] == path


def test_an_unknown_asset_is_a_problem(site: Site) -> None:
    assert_problem(site.get("/docs/assets/nothing.js"), 404)


def test_a_method_that_a_path_lacks_is_answered_with_those_it_has(site: Site) -> None:
    job_id = site.submit()
    reading = {"GET", "HEAD", "DELETE", "OPTIONS"}
    for path, allowed in (
        ("quick", {"POST", "OPTIONS"}),
        (job_id, reading),
        (f"{job_id}/status", reading),
        *((f"{job_id}/{each}", {"GET", "HEAD", "OPTIONS"}) for each in ("operation", "events", "log", "result")),
        (f"{job_id}/cancel", {"POST", "OPTIONS"}),
    ):
        for method in {"GET", "HEAD", "PUT", "PATCH", "DELETE", "TRACE", "BREW", "PROPFIND"} - allowed:
            response = site.ask(method, f"/jobs/{path}")
            assert set(response.allow) == allowed, path
            assert (response.status_code, response.content_type) == (405, PROBLEM)


def test_options_answers_allow_and_creates_no_job(site: Site, store: Engine) -> None:
    response = site.ask("OPTIONS", "/jobs/quick")
    assert response.status_code in (200, 204)
    assert (set(response.allow), response.data) == ({"POST", "OPTIONS"}, b"")
    assert response.headers["Cache-Control"] == "no-store"
    assert not [name for name in response.headers if "Access-Control" in name[0]]
    assert site.count(store) == 0


def test_options_answers_allow_for_the_documentation_too(site: Site) -> None:
    for path in ("/docs/", "/docs/openapi.json"):
        response = site.ask("OPTIONS", path)
        assert set(response.allow) == {"GET", "HEAD", "OPTIONS"}
        assert response.headers["Cache-Control"] == "no-store"


def test_what_follows_a_type_is_no_job(site: Site) -> None:
    for method, path in (("GET", "status"), ("DELETE", "status"), ("POST", "cancel"), ("GET", "operation")):
        assert_problem(site.ask(method, f"/jobs/quick/{path}"), 404)


def test_head_is_get_without_a_body(site: Site) -> None:
    job_id, batch_id = site.submit(), accepted(site)
    for path in (
        *(f"jobs/{job_id}{each}" for each in ("", "/status", "/operation", "/log", "/result")),
        *(f"batches/{batch_id}{each}" for each in ("", "/items")),
        *(f"jobs/{UNKNOWN_ID}/status", f"batches/{UNKNOWN_ID}", "jobs/a/b/c", "jobs/quick", "batches/quick"),
    ):
        get, head = site.get(f"/{path}"), site.ask("HEAD", f"/{path}")
        assert (head.status_code, head.headers, head.data) == (get.status_code, get.headers, b""), path


def test_no_path_is_redirected(site: Site) -> None:
    job_id, batch_id = site.submit(), accepted(site)
    paths = ["/jobs/quick", "/batches/quick", f"/batches/{batch_id}", f"/batches/{batch_id}/items", "/docs"]
    paths += [f"/jobs/{job_id}{each}" for each in ("", "/status", "/cancel", "/log", "/result")]
    for path in paths:
        for spelled in (path, f"{path}/", f"{path}//", path.replace("/", "//"), path.replace("s/", "s//", 1)):
            for method in ("GET", "POST", "DELETE", "HEAD", "OPTIONS"):
                assert not 300 <= site.ask(method, spelled).status_code < 400
    assert site.get(f"/jobs/{job_id}/status/").status_code == 200
    assert site.ask("POST", "/jobs/quick/").status_code == 202
    assert_problem(site.get(f"/jobs//{job_id}/status"), 404)


def test_odd_paths_are_unknown(site: Site, store: Engine) -> None:
    for odd in (
        "fake",
        "x" * 1000,
        "%00",
        "%0d%0a",
        "x%0a",
        "%D9%A1%D9%A2",
        "%ff",
        "%2e%2e",
        "a%20b",
        "%22%27",
        "+",
    ):
        for method, path in (
            ("GET", odd), ("GET", f"{odd}/status"), ("GET", f"{odd}/operation"), ("DELETE", odd),
            ("DELETE", f"{odd}/status"), ("POST", f"{odd}/cancel"), ("GET", f"{odd}/events"),
        ):  # fmt: skip
            assert_problem(site.ask(method, f"/jobs/{path}"), 404)
        assert_problem(site.ask("POST", f"/jobs/{odd}"), 400)
    assert site.count(store) == 0


def test_a_catch_all_of_the_application_catches_nothing_under_the_prefix(store: Engine) -> None:
    app = new_app()
    app.add_url_rule("/<path:rest>", "all", lambda rest: "all", methods=["GET", "POST"])
    with serving(TestJobs(), store, app=app) as site:
        assert_problem(site.get("/jobs/a/b"), 404, "not-found")
        assert site.get("/a/b").text == site.get("/jobsx").text == "all"


def owned(store: Engine, loader: Callable[[], Any]) -> Any:
    jobs = TestJobs()
    jobs.owner_loader(loader)
    return serving(jobs, store)


def everywhere(site: Site) -> Iterator[Any]:
    """The answers of every kind of route."""
    yield site.post("quick")
    yield site.batch("quick", '{"items": [{"itemId": "a"}]}', key="k")
    for method, path in (("GET", "status"), ("GET", "operation"), ("DELETE", "status"), ("POST", "cancel")):
        yield site.ask(method, f"/jobs/{UNKNOWN_ID}/{path}")
    for path in ("events", "log", "result"):
        yield site.get(f"/jobs/{UNKNOWN_ID}/{path}")
    for method, path in (("GET", ""), ("GET", "/items"), ("GET", "/events"), ("DELETE", "")):
        yield site.ask(method, f"/batches/{UNKNOWN_ID}{path}")


def test_a_fault_of_the_owner_loader_shows_nothing_of_it(store: Engine, caplog: pytest.LogCaptureFixture) -> None:
    with owned(store, lambda: {}["secret"]) as site:
        for response in everywhere(site):
            assert_problem(response, 500, "internal-error")
            assert "secret" not in response.text
        assert "KeyError" in caplog.text


@pytest.mark.parametrize("status", [401, 403, 404, 418, 429, 500, 503])
def test_an_owner_loader_may_abort(store: Engine, status: int) -> None:
    with owned(store, lambda: abort(status)) as site:
        for response in everywhere(site):
            assert_problem(response, status)


def test_an_owner_loader_may_abort_with_a_response_of_its_own(store: Engine) -> None:
    with owned(store, lambda: abort(Response("<p>no</p>", 403))) as site:
        for response in everywhere(site):
            assert_problem(response, 403)


# The database


def test_missing_tables_are_unavailable_and_logged_once(
    empty_database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine = create_engine(empty_database_url)
    with caplog.at_level(logging.INFO, LOGGER), serving(TestJobs(), engine) as site:
        for response in [*everywhere(site), *everywhere(site)]:
            assert_problem(response, 503, "storage-unavailable")
            assert "async_jobs" not in response.json["detail"]
    assert ["flask async-jobs db upgrade" in r.getMessage() for r in caplog.records if r.name == LOGGER] == [True]
    engine.dispose()


@pytest.mark.parametrize("url", ["postgresql+psycopg://me:pw@127.0.0.1:1/none", "sqlite:////nowhere/none.sqlite"])
def test_a_database_that_is_down_is_unavailable(url: str) -> None:
    engine = create_engine(url)
    with serving(TestJobs(), engine) as site:
        for response in everywhere(site):
            problem = assert_problem(response, 503, "storage-unavailable")
            assert not {"127.0.0.1", "nowhere", "sql"} & set(problem["detail"].split())
    engine.dispose()


# Outside


def test_outside_nothing_is_changed(site: Site, tmp_path: Path) -> None:
    plain = consumer(tmp_path)
    paths = (
        "/ /none /other /other/ /folder /folder/ /broken /jobs-board /jobsx //other /merged/a//b /static/site.css"
    )
    for path in [*paths.split(), "/static/none", "/job", "/batch", "/documents"]:
        for method in ("GET", "HEAD", "POST", "OPTIONS", "BREW"):
            mine, theirs = site.ask(method, path), plain.test_client().open(path, method=method, buffered=True)
            assert (mine.status_code, mine.data) == (theirs.status_code, theirs.data), (method, path)
            assert drop_date(mine.headers) == drop_date(theirs.headers)


def drop_date(headers: Any) -> list[tuple[str, str]]:
    """Return the headers without the instant of the answer; the order of Allow is any."""
    kept = [(name, value) for name, value in headers if name not in ("Date", "Expires")]
    return sorted((name, "".join(sorted(value)) if name == "Allow" else value) for name, value in kept)


def test_the_configuration_stays_as_it_was(site: Site, tmp_path: Path) -> None:
    plain = consumer(tmp_path)
    assert {k: v for k, v in site.app.config.items() if not k.startswith("ASYNC_JOBS_")} == dict(plain.config)
    assert site.app.error_handler_spec.keys() == plain.error_handler_spec.keys()
    assert site.app.url_map.strict_slashes == plain.url_map.strict_slashes
    assert site.app.json.__class__ is plain.json.__class__
    assert not site.app.before_request_funcs | site.app.after_request_funcs
