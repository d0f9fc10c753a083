"""Where the result of a job is: `result_url` in every form, and the redirect to it."""

import json
import threading

import pytest
from flask import Flask, url_for
from werkzeug.exceptions import NotFound
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.test import Client

from flask_async_jobs import AsyncJobs, ConfigurationError, JobError, JobFailed, JobRepository, JobStatus
from flask_async_jobs.records import TypeRules
from tests.integration.counting import counted
from tests.integration.processes import application, running
from tests.integration.stores import LEASE, new_job
from tests.waiting import wait_until

FORMS = {
    "path": ("/listings/{job_id}", "/listings/{id}"),
    "endpoint": ("listing", "/listings/{id}"),
    "fixed": ("/accounts?sort=name#top", "/accounts?sort=name#top"),
    "called": (lambda job: url_for("listing", job_id=job.job_id), "/listings/{id}"),
    "relative": (lambda job: f"listings/{job.job_id}", "/listings/{id}"),
    "of_result": (lambda job: url_for("listing", job_id=job.result["listing"]), "/listings/17"),
}


def add_listing(app: Flask) -> None:
    app.add_url_rule("/listings/<job_id>", "listing", lambda job_id: {"listing": job_id})


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


def claimed(repository, type):
    repository.insert(new_job(type))
    (claim,) = repository.claim([TypeRules(type)], 1, LEASE)
    return claim


def completed(repository, type, result='{"listing":17}'):
    claim = claimed(repository, type)
    repository.complete(claim.job_id, claim.execution_token, result)
    return str(claim.job_id)


# The URL


@pytest.mark.parametrize("form", FORMS)
def test_a_completed_job_names_its_result(client, repository, form):
    job_id = completed(repository, form)
    body = client.get(f"/jobs/{job_id}/status").json
    assert body["resultUrl"] == "http://localhost" + FORMS[form][1].format(id=job_id)
    assert client.get(f"/jobs/{job_id}").json == body


def test_a_job_has_no_result_url_before_it_has_completed(client, jobs, engine, repository):
    claim = claimed(repository, "path")
    assert "resultUrl" not in client.get(f"/jobs/{claim.job_id}").json
    repository.cancel(claim.job_id)
    assert "resultUrl" not in client.get(f"/jobs/{claim.job_id}").json


def test_a_failed_job_has_no_result_url_and_does_not_redirect(client, repository):
    claim = claimed(repository, "to_path")
    repository.fail(claim.job_id, claim.execution_token, JobError.of("No"))
    response = client.get(f"/jobs/{claim.job_id}")
    assert (response.status_code, "resultUrl" in response.json) == (422, False)


def test_without_a_result_url_no_body_names_one(client, repository):
    for type in ("plain", "unknown", "nowhere"):
        response = client.get(f"/jobs/{completed(repository, type)}")
        assert (response.status_code, "resultUrl" in response.json) == (200, False)


def test_the_url_holds_behind_a_proxy_and_below_a_script_name(app, repository):
    sent = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "api.example", "X-Forwarded-Prefix": "/svc"}
    ids = {form: completed(repository, form) for form in FORMS}
    mounted = Client(DispatcherMiddleware(NotFound(), {"/svc": app}))
    proxied = Client(ProxyFix(app, x_proto=1, x_host=1, x_prefix=1))
    for form, job_id in ids.items():
        expected = "https://api.example/svc" + FORMS[form][1].format(id=job_id)
        direct = mounted.get(f"/svc/jobs/{job_id}", base_url="https://api.example")
        assert direct.json["resultUrl"] == expected
        assert proxied.get(f"/jobs/{job_id}", headers=sent).json["resultUrl"] == expected
        location = proxied.get(f"/jobs/{completed(repository, f'to_{form}')}", headers=sent).location
        assert location.startswith("https://api.example/svc/")


def test_a_whole_address_stays_as_it_is(jobs, app, client, repository):
    jobs.register("cdn", lambda: None, result_url="https://cdn.example/{job_id}.csv", redirect=True)
    jobs.register("key", lambda: None, result_url=lambda job: "https://cdn.example/ü?sig=a b")
    job_id = completed(repository, "cdn")
    assert client.get(f"/jobs/{job_id}").location == f"https://cdn.example/{job_id}.csv"
    url = client.get(f"/jobs/{completed(repository, 'key')}").json["resultUrl"]
    assert url == "https://cdn.example/%C3%BC?sig=a%20b"


@pytest.mark.parametrize(
    "given",
    [
        17,
        "",
        "  ",
        "/a\r\nSet-Cookie: a=b",
        b"/a",
        "//evil.example/a",
        " //evil.example",
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        "data:text/html,x",
        KeyError("gone"),
    ],
)
def test_a_callable_that_gives_no_url_is_logged_and_changes_nothing_else(jobs, client, repository, caplog, given):
    def fail(job):
        if isinstance(given, Exception):
            raise given
        return given

    jobs.register("broken", lambda: None, result_url=fail, redirect=True)
    job_id = completed(repository, "broken")
    response = client.get(f"/jobs/{job_id}")
    assert (response.status_code, response.json["status"]) == (200, "COMPLETED")
    assert "resultUrl" not in response.json
    assert f"the result_url of 'broken' gives no URL for job {job_id}" in caplog.text


def test_only_a_callable_costs_another_statement(app, engine, client, repository):
    for type, expected in (("plain", 1), ("to_path", 1), ("to_result", 1), ("called", 2)):
        job_id = completed(repository, type)
        with counted(engine) as seen:
            client.get(f"/jobs/{job_id}")
        assert len(seen) == expected, (type, seen)


# The redirect


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("form", FORMS)
def test_a_type_that_redirects_answers_303_with_the_url_of_the_result(client, repository, form, method):
    job_id = completed(repository, f"to_{form}")
    response = client.open(f"/jobs/{job_id}/status", method=method)
    assert response.status_code == 303
    assert response.headers["Location"] == "http://localhost" + FORMS[form][1].format(id=job_id)
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Expires"]
    assert "Retry-After" not in response.headers
    assert "ETag" not in response.headers
    if method == "GET":
        assert response.json["resultUrl"] == response.headers["Location"]


def test_without_a_result_url_the_redirect_is_to_the_stored_result(client, repository):
    job_id = completed(repository, "to_result")
    response = client.get(f"/jobs/{job_id}/status", follow_redirects=True)
    assert (response.request.path, response.json) == (f"/jobs/{job_id}/result", {"listing": 17})


def test_a_redirect_is_never_304(client, repository):
    job_id = completed(repository, "to_path")
    for known in ('"3"', 'W/"3"', "*", '"1"'):
        for more in ({}, {"Prefer": "wait=5"}):
            response = client.get(f"/jobs/{job_id}", headers={"If-None-Match": known, **more})
            assert response.status_code == 303, known


def test_only_a_completed_job_redirects(client, repository):
    claim = claimed(repository, "to_path")
    assert client.get(f"/jobs/{claim.job_id}").status_code == 200
    assert client.delete(f"/jobs/{claim.job_id}").status_code == 202
    response = client.get(f"/jobs/{claim.job_id}")
    assert (response.status_code, response.json["status"]) == (200, "CANCELLED")


def test_the_other_routes_of_a_redirecting_job_stay_as_they_are(client, repository):
    job_id = completed(repository, "to_path")
    assert client.get(f"/jobs/{job_id}/operation").json["status"] == "Succeeded"
    assert client.get(f"/jobs/{job_id}/result").json == {"listing": 17}
    assert client.delete(f"/jobs/{job_id}").status_code == 409


def test_a_wait_ends_with_the_redirect_on_submission_and_status_alike(jobs, engine):
    gate = threading.Event()

    def refuse():
        raise JobFailed("No")

    jobs.register("gate", lambda: gate.wait(10) and None, result_url="/listings/{job_id}", redirect=True)
    jobs.register("refuse", refuse, result_url="/listings/{job_id}", redirect=True)
    app = application(jobs, engine, SSE_POLL_INTERVAL=0.1)
    add_listing(app)
    with app.app_context():
        jobs.start()
        client = app.test_client()
        done = client.post("/jobs/to_path", headers={"Prefer": "wait=10"})
        assert (done.status_code, done.headers["Preference-Applied"]) == (303, "wait=10")
        assert done.location == done.json["resultUrl"] == f"http://localhost/listings/{done.json['jobId']}"
        plain = client.post("/jobs/path", headers={"Prefer": "wait=10"})
        assert (plain.status_code, plain.location) == (200, f"http://localhost/jobs/{plain.json['jobId']}/status")
        failed = client.post("/jobs/refuse", headers={"Prefer": "wait=10"})
        assert (failed.status_code, failed.location) == (422, failed.json["instance"])
        url = client.post("/jobs/gate").location
        wait_until(lambda: client.get(url).json["status"] == "PROCESSING")
        etag = client.get(url).headers["ETag"]
        threading.Timer(0.2, gate.set).start()
        response = client.get(url, headers={"Prefer": "wait=10", "If-None-Match": etag})
        assert (response.status_code, response.headers["Preference-Applied"]) == (303, "wait=10")


# Events, Python and the command line


@pytest.mark.parametrize("form", [*FORMS, "to_path"])
def test_the_complete_event_names_the_result(client, repository, form):
    job_id = completed(repository, form)
    text = client.get(f"/jobs/{job_id}/events", base_url="https://api.example/svc").text
    data = json.loads(text.rpartition("data: ")[2])
    expected = FORMS[form.removeprefix("to_")][1].format(id=job_id)
    assert data["resultUrl"] == f"https://api.example/svc{expected}"
    assert data.keys() == {"jobId", "lastUpdatedAt", "resultUrl"}


def test_a_callable_that_fails_leaves_the_complete_event_without_a_url(jobs, client, repository):
    jobs.register("broken", lambda: None, result_url=lambda job: 1 / 0)
    text = client.get(f"/jobs/{completed(repository, 'broken')}/events").text
    assert json.loads(text.rpartition("data: ")[2]).keys() == {"jobId", "lastUpdatedAt"}


@pytest.mark.parametrize(
    ("config", "root"),
    [
        ({}, ""),
        ({"APPLICATION_ROOT": "/svc"}, "/svc"),
        ({"SERVER_NAME": "api.example", "PREFERRED_URL_SCHEME": "https"}, "https://api.example"),
    ],
)
def test_python_gives_the_url_where_an_application_can_build_it(app, jobs, repository, config, root):
    app.config.update(config)
    ids = {form: completed(repository, form) for form in ("path", "endpoint", "relative", "plain")}
    with app.app_context():
        for form in ("path", "endpoint", "relative"):
            assert jobs.get(ids[form]).result_url == f"{root}/listings/{ids[form]}"
            assert jobs.wait(ids[form], 0).result_url == f"{root}/listings/{ids[form]}"
            assert [event.result_url for event in jobs.watch(ids[form])] == [f"{root}/listings/{ids[form]}"]
        assert jobs.get(ids["plain"]).result_url is None
        assert jobs.get(ids["plain"]).result == {"listing": 17}


def test_without_routes_a_result_url_is_given_and_the_librarys_own_is_not(jobs, engine, repository):
    app = application(jobs, engine, WEB_ENABLED=False)
    with app.app_context():
        assert jobs.get(completed(repository, "path")).result_url.startswith("/listings/")
        assert jobs.get(completed(repository, "to_result")).result_url is None


def test_the_commands_name_the_result(app, repository):
    job_id = completed(repository, "path")
    runner = app.test_cli_runner()
    found = json.loads(runner.invoke(args=["async-jobs", "status", job_id, "--json"]).output)
    assert found["resultUrl"] == f"/listings/{job_id}"
    assert f"resultUrl: /listings/{job_id}" in runner.invoke(args=["async-jobs", "status", job_id]).output


# Registration, and the document


@pytest.mark.parametrize("endpoint", ["unknown", "two", "number"])
def test_an_endpoint_that_the_application_lacks_is_refused_at_the_start(engine, endpoint):
    jobs = AsyncJobs()
    jobs.register("a", lambda: None, result_url=endpoint)
    app = application(jobs, engine)
    app.add_url_rule("/two/<job_id>/<other>", "two", lambda **ids: {})
    app.add_url_rule("/number/<int:job_id>", "number", lambda **ids: {})
    with pytest.raises(ConfigurationError, match=f"'a': result_url is '{endpoint}', and no endpoint"):
        jobs.start(app)


def test_an_application_without_the_librarys_routes_needs_no_endpoint(engine):
    jobs = AsyncJobs()
    jobs.register("a", lambda: None, result_url="unknown")
    with running(jobs, engine, WEB_ENABLED=False):
        job = jobs.wait(jobs.submit("a").job_id, 5)
    assert (job.status, job.result_url) == (JobStatus.COMPLETED, None)


def test_an_endpoint_with_a_uuid_is_taken(engine, repository):
    jobs = AsyncJobs()
    jobs.register("a", lambda: None, result_url="uuid")
    app = application(jobs, engine, PROCESSING_ENABLED=False)
    app.add_url_rule("/uuid/<uuid:job_id>", "uuid", lambda **ids: {})
    jobs.start(app)
    job_id = completed(repository, "a")
    assert app.test_client().get(f"/jobs/{job_id}").json["resultUrl"] == f"http://localhost/uuid/{job_id}"


def test_the_document_says_which_types_redirect(client, repository):
    redirected = set(client.get(f"/jobs/{completed(repository, 'to_path')}").headers.keys())
    paths = client.get("/docs/openapi.json").json["paths"]
    for path, method, documented in (
        ("/jobs/to_path", "post", True),
        ("/jobs/path", "post", False),
        ("/jobs/{job_id}/status", "get", True),
        ("/jobs/{job_id}", "get", True),
    ):
        answers = paths[path][method]["responses"]
        assert ("303" in answers) is documented
        if documented:
            assert redirected - answers["303"]["headers"].keys() == {"Content-Type", "Content-Length"}
            assert answers["303"]["content"]["application/json"]["example"]["resultUrl"]
