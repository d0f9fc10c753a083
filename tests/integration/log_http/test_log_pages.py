"""`GET /jobs/{id}/log`: the pages, and the log in Python."""

from uuid import uuid4

import pytest

from flask_async_jobs import AsyncJobs, JobStatus
from tests.integration.apps import TestJobs, assert_problem, serving
from tests.integration.log_http.requests import LINES, write
from tests.integration.processes import application, running
from tests.integration.stores import new_job
from tests.integration.streams import blocks
from tests.waiting import wait_until


@pytest.mark.parametrize("accept", ["application/json", "*/*", "text/html", "text/event-stream;q=0", None])
def test_whoever_does_not_ask_for_a_stream_gets_pages(site, claim, repository, accept):
    headers = {} if accept is None else {"Accept": accept}
    url = f"/jobs/{claim.job_id}/log"
    page = site.get(f"{url}?limit=4", headers=headers)
    assert page.mimetype == "application/json"
    assert page.headers["Cache-Control"] == "no-store"
    assert [(line["id"], line["line"]) for line in page.json["lines"]] == [*enumerate(LINES[:4], 1)]
    assert all(line.keys() == {"id", "line", "at"} for line in page.json["lines"])
    assert page.json["nextAfter"] == 4
    rest = site.get(f"{url}?after=4", headers=headers).json
    assert ([line["id"] for line in rest["lines"]], rest["nextAfter"]) == ([5, 6], 6)
    assert site.get(f"{url}?after=6", headers=headers).json == {"lines": [], "nextAfter": 6}
    repository.complete(claim.job_id, claim.execution_token)
    assert site.get(f"{url}?after=6", headers=headers).json == {"lines": [], "nextAfter": None}
    assert site.get(f"{url}?after=4", headers=headers).json["nextAfter"] is None
    assert site.get(f"{url}?after=4&limit=1", headers=headers).json["nextAfter"] == 5


@pytest.mark.parametrize("accept", ["text/event-stream", "application/json, Text/Event-Stream;q=0.5"])
def test_whoever_names_the_stream_gets_it(site, ended, accept):
    assert site.get(f"/jobs/{ended}/log", headers={"Accept": accept}).mimetype == "text/event-stream"


def test_a_job_that_logged_nothing_has_an_empty_log(site, repository):
    job = repository.insert(new_job())
    assert site.get(f"/jobs/{job.job_id}/log").json == {"lines": [], "nextAfter": 0}
    assert site.get(f"/jobs/{job.job_id}/log?after=2147483647").json == {"lines": [], "nextAfter": 0}
    repository.cancel(job.job_id)
    assert site.get(f"/jobs/{job.job_id}/log").json == {"lines": [], "nextAfter": None}


@pytest.mark.parametrize(
    "query",
    ["after=-1", "after=x", "after=", "after=2147483648", "limit=0", "limit=1001", "limit=1.5", "limit=%D9%A3"],
)
def test_parameters_that_make_no_sense_are_422(site, ended, query):
    problem = assert_problem(site.get(f"/jobs/{ended}/log?{query}"), 422, "invalid-parameters")
    assert problem["errors"].keys() == {query.partition("=")[0]}
    assert_problem(site.get(f"/jobs/{uuid4()}/log?{query}"), 404, "job-not-found")


def test_the_log_url_of_a_submission_can_be_followed(engine):
    with serving(TestJobs(), engine, run=True) as site:
        accepted = site.post("quick").json
        site.ended(accepted["jobId"])
        assert site.get(accepted["logUrl"]).json == {"lines": [], "nextAfter": None}


# Python


def test_a_detached_worker_logs_through_a_reporter(engine):
    jobs = TestJobs()
    with serving(jobs, engine, run=True) as site:
        job_id = site.submit("remote")
        token = site.context(job_id).execution_token
        with site.app.app_context():
            reporter = jobs.reporter(job_id, token)
            assert [reporter.log(line) for line in LINES] == [True] * len(LINES)
            assert reporter.complete()
            assert not reporter.log("late")
            assert jobs.get(job_id).status is JobStatus.COMPLETED
        assert [line["line"] for line in site.get(f"/jobs/{job_id}/log").json["lines"]] == LINES


def test_one_log_line_over_the_limit_fails_the_job(engine):
    jobs = AsyncJobs()
    told = []

    def handler(ctx):
        ctx.log("fits")
        while ctx.log("x" * 10):
            pass
        told.append(ctx.log("more"))

    jobs.register("endless", handler)
    with running(jobs, engine, LOG_MAX_BYTES=1_000) as app:
        submitted = jobs.submit("endless")
        job = wait_until(lambda: (j := jobs.get(submitted.job_id)).status.is_terminal and told and j)
        assert (job.status, job.error.title) == (JobStatus.FAILED, "Output limit exceeded")
        page = app.test_client().get(f"/jobs/{submitted.job_id}/log?limit=1000").json
    assert told == [False]
    assert len(page["lines"]) == 1 + 99


def test_what_an_attempt_logged_is_kept_by_the_next_one(engine):
    jobs = AsyncJobs()

    def handler(ctx):
        ctx.log(f"attempt {ctx.attempt}")
        ctx.log("again")
        if ctx.attempt < 3:
            raise ValueError

    jobs.register("thrice", handler, max_attempts=3, retry_on=ValueError, backoff=0.01)
    with running(jobs, engine) as app:
        submitted = jobs.submit("thrice")
        wait_until(lambda: jobs.get(submitted.job_id).status is JobStatus.COMPLETED)
        lines = app.test_client().get(f"/jobs/{submitted.job_id}/log").json["lines"]
    assert [(line["id"], line["line"]) for line in lines] == [
        *enumerate(["attempt 1", "again", "attempt 2", "again", "attempt 3", "again"], 1)
    ]


def test_an_event_stream_goes_on_when_lines_are_logged(engine, claim, log, repository):
    app = application(TestJobs(), engine, AUTO_START=False, SSE_POLL_INTERVAL=0.05)
    response = app.test_client().get(f"/jobs/{claim.job_id}/events")
    chunks = response.iter_encoded()
    seen = [next(chunks), next(chunks)]
    write(log, claim, "more")
    seen.append(next(chunks))
    repository.complete(claim.job_id, claim.execution_token)
    seen.extend(chunks)
    response.close()
    told = blocks(b"".join(seen).decode())
    assert [block.event for block in told] == ["status", "status", "complete"]
    assert [int(block.id) for block in told] == sorted({int(block.id) for block in told})
