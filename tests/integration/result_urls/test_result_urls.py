"""Where the result of a job is: `result_url` in every form, and who names it."""

import json

import pytest
from werkzeug.exceptions import NotFound
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix
from werkzeug.test import Client

from flask_async_jobs import JobError
from tests.integration.counting import counted
from tests.integration.processes import application
from tests.integration.result_urls.listings import FORMS, claimed, completed


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
