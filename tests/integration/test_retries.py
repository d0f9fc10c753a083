"""Further attempts: after a failure that may pass, on the handler's own wish, and after a crash."""

import threading
from datetime import timedelta

import pytest

from flask_async_jobs import AsyncJobs, Disposition, JobFailed, JobStatus, RetryLater
from tests.integration.processes import running
from tests.integration.stores import back_date, row
from tests.waiting import wait_until

NOW = timedelta(milliseconds=1)


@pytest.fixture
def jobs():
    return AsyncJobs()


def ended(jobs, submitted):
    return wait_until(lambda: (job := jobs.get(submitted.job_id)).status.is_terminal and job)


def failing(times, error, attempts):
    """Return a handler that raises `error` the first `times` it is called."""

    def handler(ctx):
        attempts.append(ctx.attempt)
        if len(attempts) <= times:
            raise error

    return handler


def test_a_failure_that_may_pass_is_tried_again(jobs, engine):
    attempts = []
    jobs.register("flaky", failing(2, ConnectionError(), attempts), max_attempts=3, retry_on=OSError, backoff=NOW)
    with running(jobs, engine):
        job = ended(jobs, jobs.submit("flaky"))
    assert (job.status, job.attempt, attempts) == (JobStatus.COMPLETED, 3, [1, 2, 3])


def test_when_the_attempts_run_out_the_last_failure_is_shown_with_its_own_code(jobs, engine):
    attempts = []
    jobs.register(
        "doomed",
        failing(9, JobFailed("No luck", "x", "mine"), attempts),
        max_attempts=2,
        retry_on=JobFailed,
        backoff=NOW,
    )
    with running(jobs, engine):
        job = ended(jobs, jobs.submit("doomed"))
    assert (job.error.title, job.error.detail, job.error.code) == ("No luck", "x", "attempts-exhausted")
    assert attempts == [1, 2]


@pytest.mark.parametrize(
    "options", [{"max_attempts": 5}, {"max_attempts": 5, "retry_on": KeyError}, {"retry_on": ValueError}]
)
def test_a_failure_that_is_not_to_be_tried_again_fails_at_once(jobs, engine, options):
    attempts = []
    jobs.register("once", failing(9, ValueError(), attempts), **options)
    with running(jobs, engine):
        job = ended(jobs, jobs.submit("once"))
    assert (job.status, job.error.code, attempts) == (JobStatus.FAILED, "processing-error", [1])


def test_a_handler_that_asks_for_later_uses_up_no_attempt(jobs, engine):
    calls = []

    def handler(ctx):
        calls.append(ctx.attempt)
        if len(calls) < 4:
            raise RetryLater(NOW)

    jobs.register("later", handler)
    with running(jobs, engine):
        job = ended(jobs, jobs.submit("later"))
    assert (job.status, job.attempt, calls) == (JobStatus.COMPLETED, 1, [1, 1, 1, 1])


def test_a_job_that_waits_for_its_retry_is_pending_and_holds_its_place(jobs, engine):
    attempts = []
    jobs.register(
        "flaky", failing(1, OSError(), attempts), max_attempts=2, retry_on=OSError, backoff="PT1H", coalesce=True
    )
    with running(jobs, engine):
        first = jobs.submit("flaky")
        wait_until(lambda: attempts and jobs.get(first.job_id).status is JobStatus.PENDING)
        job = jobs.get(first.job_id)
        assert (job.attempt, job.percent_complete, job.error) == (1, None, None)
        assert row(engine, first.job_id).available_at - job.last_updated_at >= timedelta(hours=1)
        again = jobs.submit("flaky")
        assert (again.job_id, again.disposition) == (first.job_id, Disposition.COALESCED)
        jobs.cancel(first.job_id)
        assert jobs.submit("flaky").disposition is Disposition.CREATED


def test_a_job_does_not_run_before_its_time(jobs, engine):
    done = threading.Event()
    jobs.register("signal", lambda: done.set())
    with running(jobs, engine, PROCESSING_POLL_INTERVAL=0.05):
        created = jobs.submit(
            "signal", run_at=jobs.get(jobs.submit("signal").job_id).created_at + timedelta(hours=1)
        )
        assert done.wait(10)
        assert jobs.get(created.job_id).status is JobStatus.PENDING
        back_date(engine, created.job_id, timedelta(seconds=1), "available_at")
        wait_until(lambda: jobs.get(created.job_id).status is JobStatus.COMPLETED)


def test_a_recovered_job_runs_again_while_attempts_are_left(jobs, engine):
    gates, attempts = [threading.Event(), threading.Event()], []

    def handler(ctx):
        attempts.append(ctx.attempt)
        gates[ctx.attempt - 1].wait(10)

    jobs.register("crashes", handler, max_attempts=2, processing_timeout="PT10S")
    with running(jobs, engine):
        submitted = jobs.submit("crashes")
        wait_until(lambda: attempts == [1])
        back_date(engine, submitted.job_id, timedelta(minutes=1))
        assert jobs.recover() >= 1
        wait_until(lambda: attempts == [1, 2])
        gates[0].set()  # the first attempt returns late, and changes nothing
        assert jobs.get(submitted.job_id).status is JobStatus.PROCESSING
        back_date(engine, submitted.job_id, timedelta(minutes=1))
        jobs.recover()
        assert jobs.get(submitted.job_id).error.code == "attempts-exhausted"
        gates[1].set()


def test_an_attempt_that_takes_too_long_fails_and_keeps_its_slot_until_it_ends(jobs, engine):
    gate, ended_late = threading.Event(), threading.Event()

    def handler(ctx):
        gate.wait(10)
        ended_late.set()
        assert not ctx.progress(1)

    jobs.register("endless", handler, timeout=0.1, max_attempts=3)
    jobs.register("quick", lambda: None)
    with running(jobs, engine, PROCESSING_CONCURRENCY_LIMIT=1) as app:
        job = ended(jobs, jobs.submit("endless"))
        assert (job.error.title, job.error.code, job.attempt) == ("Execution timeout", "execution-timeout", 1)
        instance = app.extensions["async_jobs"]
        wait_until(lambda: instance.process_stats()["overdueThreads"] == 1)
        waiting = jobs.submit("quick")
        assert instance.process_stats()["running"] == 1
        assert jobs.get(waiting.job_id).status is JobStatus.PENDING
        gate.set()
        assert ended(jobs, waiting).status is JobStatus.COMPLETED
        assert ended_late.is_set()
        wait_until(lambda: instance.process_stats()["overdueThreads"] == 0)
        assert instance.process_stats()["attemptsLost"] >= 1


def test_an_attempt_within_its_time_is_left_alone(jobs, engine):
    jobs.register("timed", lambda ctx: None, timeout="PT10S")
    with running(jobs, engine):
        assert ended(jobs, jobs.submit("timed")).status is JobStatus.COMPLETED
