"""What a client of one job relies on, on both databases: its states, its owner, its cancellation, its reports."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from tests.integration.apps import UNKNOWN_ID, Clock, Site, TestJobs, assert_problem, serving

STATE = {"jobId", "createdAt", "lastUpdatedAt", "jobType", "percentComplete", "attempt", "effectStarted"}
RAN = STATE | {"startedAt", "completedAt"}


@pytest.fixture
def site(engine: Engine) -> Iterator[Site]:
    """Accepts jobs of owners and runs none."""
    with serving(TestJobs(owners=True), engine) as site:
        yield site


@pytest.fixture
def busy(engine: Engine) -> Iterator[Site]:
    """Accepts jobs and runs them."""
    with serving(TestJobs(), engine, run=True) as site:
        yield site


# Reading


def assert_active(site: Site, job_id: str, status: str, members: set[str], **values: Any) -> None:
    response = site.status(job_id)
    assert response.status_code == 200
    assert response.json.keys() == members | {"status"}
    assert response.json | {"jobId": job_id, "status": status, **values} == response.json
    assert response.headers["Retry-After"] == "5"
    assert response.headers["Cache-Control"] == "no-store"


def test_the_status_of_an_active_job_says_when_to_ask_again(busy: Site) -> None:
    job_id = busy.submit("remote")
    ctx = busy.context(job_id)
    assert_active(busy, job_id, "PROCESSING", STATE | {"startedAt"}, percentComplete=None, attempt=1)
    assert ctx.progress(40)
    assert_active(busy, job_id, "PROCESSING", STATE | {"startedAt"}, percentComplete=40, effectStarted=False)


def test_the_status_of_a_waiting_job_has_no_start(site: Site) -> None:
    members = {"jobType": "quick", "percentComplete": None, "attempt": 0, "effectStarted": False}
    assert_active(site, site.submit(), "PENDING", STATE, **members)


def test_the_status_of_a_completed_job_is_final(busy: Site) -> None:
    response = busy.run("quick")
    assert (response.status_code, response.json["status"]) == (200, "COMPLETED")
    assert response.json.keys() == RAN | {"status"}
    assert (response.json["percentComplete"], response.json["attempt"]) == (100, 1)
    assert "Retry-After" not in response.headers
    assert busy.get(f"/jobs/{response.json['jobId']}").data == response.data


def test_both_addresses_of_a_failed_job_give_its_problem(busy: Site) -> None:
    response = busy.run("refused")
    problem = assert_problem(response, 422, "job-failed")
    members = {"type", "title", "detail", "status", "instance", "code", "jobStatus"}
    assert problem.keys() == RAN | members
    assert problem["instance"] == f"http://localhost/jobs/{problem['jobId']}/status"
    failure = {"title": "Ledger does not balance", "detail": "Two entries differ.", "code": "ledger"}
    assert problem | failure | {"jobStatus": "FAILED", "jobType": "refused", "attempt": 1} == problem
    assert "Expires" in response.headers
    assert busy.get(f"/jobs/{problem['jobId']}").data == response.data


def test_an_unexpected_failure_says_nothing_of_its_cause(busy: Site) -> None:
    response = busy.run("boom")
    problem = assert_problem(response, 422, "job-failed")
    assert (problem["title"], problem["code"]) == ("Processing error", "processing-error")
    assert "secret" not in response.text


def test_a_failure_without_a_title_gets_one(busy: Site) -> None:
    problem = assert_problem(busy.run("blank"), 422, "job-failed")
    assert (problem["title"], problem["code"]) == ("Job failed", "job-failed")


def test_instants_and_expiry_follow_the_clock(engine: Engine) -> None:
    clock = Clock()
    with serving(TestJobs(), engine, run=True, init={"clock": clock}, RETENTION=timedelta(minutes=2)) as site:
        job_id = site.submit("remote")
        ctx = site.context(job_id)
        clock.tick(1.5)
        assert ctx.progress(10)
        response = site.status(job_id)
        assert response.json["createdAt"] == response.json["startedAt"] == "2026-06-03T22:00:00Z"
        assert response.json["lastUpdatedAt"] == "2026-06-03T22:00:01.500000Z"
        assert response.headers["Expires"] == "Wed, 03 Jun 2026 22:02:01 GMT"
        clock.tick(58.5)
        assert ctx.complete()
        response = site.status(job_id)
        assert response.json["completedAt"] == response.json["lastUpdatedAt"] == "2026-06-03T22:01:00Z"
        assert response.headers["Expires"] == "Wed, 03 Jun 2026 22:03:00 GMT"


def test_the_last_update_never_goes_back(engine: Engine) -> None:
    clock = Clock()
    with serving(TestJobs(), engine, init={"clock": clock}) as site:
        job_id = site.submit()
        clock.tick(-60)
        response = site.ask("DELETE", f"/jobs/{job_id}")
        assert response.json["lastUpdatedAt"] == response.json["completedAt"] == "2026-06-03T22:00:00Z"


def test_the_operation_speaks_the_words_of_stock_pollers(busy: Site) -> None:
    remote = busy.submit("remote")
    busy.context(remote)
    cancelled = busy.submit("remote")
    busy.ask("DELETE", f"/jobs/{cancelled}")
    done, failed = busy.run("quick").json["jobId"], busy.run("refused").json["jobId"]
    base = {"id", "status", "createdDateTime", "lastActionDateTime", "percentComplete"}
    for job_id, word in ((remote, "Running"), (cancelled, "Canceled"), (done, "Succeeded"), (failed, "Failed")):
        response = busy.get(f"/jobs/{job_id}/operation")
        assert (response.status_code, response.json["status"], response.json["id"]) == (200, word, job_id)
        assert response.json.keys() == (base | {"error"} if word == "Failed" else base)
        assert ("Retry-After" in response.headers) == (word == "Running")
        assert response.headers["Cache-Control"] == "no-store"
    assert response.json["error"] == {"code": "ledger", "message": "Two entries differ."}


# Who may see it


def test_any_other_spelling_of_an_id_is_unknown(site: Site) -> None:
    job_id = site.submit()
    assert site.status(job_id.upper()).data == site.status(job_id).data
    arabic = job_id.translate({ord("0") + n: 0x0660 + n for n in range(10)})
    for text in (job_id.replace("-", ""), f"{{{job_id}}}", f"urn:uuid:{job_id}", arabic, f"{job_id} ", "fake"):
        for path in (text, f"{text}/status", f"{text}/operation"):
            assert_problem(site.get(f"/jobs/{path}"), 404, "job-not-found")


def test_a_job_of_another_owner_looks_like_an_unknown_one(site: Site) -> None:
    site.headers = {"X-Owner": "ann"}
    job_id = site.submit()
    for owner in ("bob", None):
        site.headers = {"X-Owner": owner} if owner else {}
        for method, rest in (
            ("GET", ""), ("GET", "/status"), ("GET", "/operation"), ("GET", "/events"), ("GET", "/log"),
            ("GET", "/result"), ("DELETE", ""), ("DELETE", "/status"), ("POST", "/cancel"),
        ):  # fmt: skip
            theirs = site.ask(method, f"/jobs/{job_id}{rest}")
            unknown = site.ask(method, f"/jobs/{UNKNOWN_ID}{rest}")
            assert_problem(theirs, 404, "job-not-found")
            assert theirs.data.replace(job_id.encode(), UNKNOWN_ID.encode()) == unknown.data
            assert theirs.headers == unknown.headers
    site.headers = {"X-Owner": "ann"}
    assert site.status(job_id).json["status"] == "PENDING"


def test_keys_and_single_flight_are_the_owners_own(site: Site) -> None:
    site.headers = {"X-Owner": "ann"}
    first = site.submit("single", key="k")
    site.headers = {"X-Owner": "bob"}
    second = site.submit("single", key="k")
    assert first != second
    assert site.post("quick").json["disposition"] == "created"
    assert site.submit("single") == second


def test_an_owner_may_be_required(engine: Engine) -> None:
    with serving(TestJobs(owners=True), engine, REQUIRE_OWNER=True) as site:
        for method, path in (
            ("POST", "jobs/quick"), ("GET", f"jobs/{UNKNOWN_ID}"), ("GET", f"jobs/{UNKNOWN_ID}/status"),
            ("GET", f"jobs/{UNKNOWN_ID}/operation"), ("GET", f"jobs/{UNKNOWN_ID}/events"),
            ("GET", f"jobs/{UNKNOWN_ID}/log"), ("GET", f"jobs/{UNKNOWN_ID}/result"),
            ("DELETE", f"jobs/{UNKNOWN_ID}"), ("POST", f"jobs/{UNKNOWN_ID}/cancel"),
            ("GET", f"batches/{UNKNOWN_ID}"), ("GET", f"batches/{UNKNOWN_ID}/items"),
            ("GET", f"batches/{UNKNOWN_ID}/events"), ("DELETE", f"batches/{UNKNOWN_ID}"),
        ):  # fmt: skip
            assert_problem(site.ask(method, f"/{path}"), 401, "owner-required")
        assert_problem(site.batch("quick", '{"items": [{"itemId": "a"}]}', key="k"), 401, "owner-required")
        assert site.count(engine) == 0
        site.headers = {"X-Owner": "ann"}
        assert site.status(site.submit()).status_code == 200


# Cancellation


@pytest.mark.parametrize(("method", "rest"), [("DELETE", ""), ("DELETE", "/status"), ("POST", "/cancel")])
def test_a_cancelled_job_has_ended_for_good(busy: Site, method: str, rest: str) -> None:
    job_id = busy.submit("remote")
    ctx = busy.context(job_id)
    response = busy.ask(method, f"/jobs/{job_id}{rest}")
    assert (response.status_code, response.json["status"]) == (202, "CANCELLED")
    assert response.json.keys() == RAN | {"status"}
    assert "Retry-After" not in response.headers
    assert response.data == busy.status(job_id).data
    assert response.json["effectStarted"] is False
    assert ctx.is_cancelled
    assert [ctx.progress(1), ctx.mark_effect_started(), ctx.complete(), ctx.fail("x")] == [False] * 4
    problem = assert_problem(busy.ask(method, f"/jobs/{job_id}{rest}"), 409, "already-terminal")
    assert (problem["jobId"], problem["jobStatus"]) == (job_id, "CANCELLED")
    assert busy.status(job_id).data == response.data


def test_a_job_that_ended_cannot_be_cancelled(busy: Site) -> None:
    for type, state in (("quick", "COMPLETED"), ("refused", "FAILED")):
        job_id = busy.run(type).json["jobId"]
        assert assert_problem(busy.ask("DELETE", f"/jobs/{job_id}"), 409)["jobStatus"] == state
    assert_problem(busy.ask("DELETE", f"/jobs/{UNKNOWN_ID}"), 404, "job-not-found")


def test_a_cancellation_after_an_effect_says_so(busy: Site) -> None:
    job_id = busy.submit("remote")
    assert busy.context(job_id).mark_effect_started()
    assert busy.status(job_id).json["effectStarted"] is True
    assert busy.ask("DELETE", f"/jobs/{job_id}").json["effectStarted"] is True


# Detached jobs


@pytest.mark.parametrize("fenced", [True, False])
def test_a_detached_job_ends_by_its_reporter(busy: Site, fenced: bool) -> None:
    done, failed = busy.submit("remote"), busy.submit("remote")
    contexts = [busy.context(job_id) for job_id in (done, failed)]
    with busy.app.app_context():
        reporters = [busy.jobs.reporter(c.job_id, c.execution_token if fenced else None) for c in contexts]
    assert busy.status(done).json["status"] == busy.status(failed).json["status"] == "PROCESSING"
    assert reporters[0].progress(50)
    assert reporters[0].complete()
    assert reporters[1].fail("Sold out", "Nothing is left.", "sold-out")
    assert busy.status(done).json["status"] == "COMPLETED"
    problem = assert_problem(busy.status(failed), 422, "job-failed")
    assert (problem["title"], problem["detail"], problem["code"]) == ("Sold out", "Nothing is left.", "sold-out")
    for reporter in reporters:
        assert [reporter.progress(1), reporter.complete(), reporter.fail("x")] == [False] * 3


def test_a_stale_token_and_an_unknown_job_report_in_vain(busy: Site) -> None:
    job_id = busy.submit("remote")
    busy.context(job_id)
    with busy.app.app_context():
        strangers = [busy.jobs.reporter(job_id, uuid4()), busy.jobs.reporter(UNKNOWN_ID)]
    before = busy.status(job_id).data
    for reporter in strangers:
        reports = (reporter.progress(1), reporter.mark_effect_started(), reporter.complete(), reporter.fail("x"))
        assert not any(reports)
    assert busy.status(job_id).data == before
