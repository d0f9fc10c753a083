"""Running attempts: what a handler meets, and what becomes of whatever it does."""

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from flask_async_jobs import AsyncJobs, CancelResult, JobFailed, JobStatus
from tests.integration.processes import running
from tests.integration.stores import back_date, row
from tests.waiting import wait_until


@pytest.fixture
def jobs():
    return AsyncJobs()


def ended(jobs, submitted):
    """Wait until a job has ended and return it."""
    return wait_until(lambda: (job := jobs.get(submitted.job_id)) and job.status.is_terminal and job)


class UnprintableError(Exception):
    def __str__(self):
        raise RuntimeError("even this")


def raising(error):
    def handler():
        raise error

    return handler


@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        BaseException(),
        UnprintableError(),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_handler_raises_its_job_fails_without_the_text(jobs, engine, error):
    jobs.register("raise", raising(error))
    jobs.register("quick", lambda: None)
    with running(jobs, engine, PROCESSING_CONCURRENCY_LIMIT=1):
        job = ended(jobs, jobs.submit("raise"))
        assert (job.status, job.error.title, job.error.code) == (
            JobStatus.FAILED,
            "Processing error",
            "processing-error",
        )
        assert job.error.detail is None
        assert ended(jobs, jobs.submit("quick")).status is JobStatus.COMPLETED


def test_the_text_of_an_error_is_shown_only_if_the_application_wants_it(jobs, engine):
    jobs.register("raise", raising(ValueError("secret \0 \ud800")))
    with running(jobs, engine, EXPOSE_ERRORS=True):
        assert ended(jobs, jobs.submit("raise")).error.detail == "ValueError: secret \ufffd \ufffd"


@pytest.mark.parametrize(
    ("failure", "shown"),
    [
        (JobFailed("No", "because", "no"), ("No", "because", "no")),
        (JobFailed("  "), ("Job failed", None, "job-failed")),
        (JobFailed("a\0b\ud800"), ("a\ufffdb\ufffd", None, "job-failed")),
        (JobFailed("t" * 999, "d" * 9_999, "c" * 99), ("t" * 256, "d" * 2_000, "c" * 64)),
        (JobFailed(None, 7, UnprintableError()), ("None", "7", "job-failed")),
    ],
)
def test_a_job_failed_is_shown_as_it_is(jobs, engine, failure, shown):
    jobs.register("fail", raising(failure))
    with running(jobs, engine):
        error = ended(jobs, jobs.submit("fail")).error
    assert (error.title, error.detail, error.code) == shown


def itself():
    """Return a list that is a part of itself."""
    value = []
    value.append({"again": value})
    return value


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (None, None),
        ({"n": 1, "list": [1, "x", None]}, {"n": 1, "list": [1, "x", None]}),
        (float("nan"), "result-not-storable"),
        ({"deep": [float("inf")]}, "result-not-storable"),
        (b"bytes", "result-not-storable"),
        (iter(()), "result-not-storable"),
        ({"deep": [{"deeper": float("-inf")}]}, "result-not-storable"),
        ([Decimal("45.00")], [Decimal("45.00")]),
        (Decimal("NaN"), "result-not-storable"),
        (datetime(2026, 6, 3, 22, tzinfo=UTC), "result-not-storable"),
        (UUID(int=1), "result-not-storable"),
        ({1, 2}, "result-not-storable"),
        (itself(), "result-not-storable"),
        (object(), "result-not-storable"),
        ({1: 2}, "result-not-storable"),
        ("a\0b", "result-not-storable"),
        ("\ud800", "result-not-storable"),
        ("x" * 20_000_000, "result-too-large"),
    ],
    ids=lambda value: str(value)[:20] if isinstance(value, str) else type(value).__name__,
)
def test_whatever_a_handler_returns_its_job_ends_within_two_seconds(jobs, engine, value, outcome):
    jobs.register("return", lambda: value)
    with running(jobs, engine):
        submitted = jobs.submit("return")
        job = wait_until(lambda: (j := jobs.get(submitted.job_id)).status.is_terminal and j, timeout=2)
    if isinstance(outcome, str):
        assert (job.status, job.error.code) == (JobStatus.FAILED, outcome)
    else:
        assert (job.status, job.result) == (JobStatus.COMPLETED, outcome)


def test_a_handler_takes_nothing_the_context_or_the_context_and_the_payload(jobs, engine):
    seen = {}
    jobs.register("none", lambda: seen.update(none=True))
    jobs.register("ctx", lambda ctx: seen.update(ctx=ctx))
    jobs.register("both", lambda ctx, payload: seen.update(both=(ctx, payload)))
    with running(jobs, engine):
        submitted = {type: jobs.submit(type, owner="o") for type in ("none", "ctx", "both")}
        for each in submitted.values():
            ended(jobs, each)
        context = seen["ctx"]
        assert (context.job_id, context.type, context.attempt, context.owner) == (
            submitted["ctx"].job_id,
            "ctx",
            1,
            "o",
        )
        assert (context.payload, seen["both"][1]) == (None, None)
        assert context.last_completed_at == jobs.get(context.job_id).completed_at


def test_progress_is_shown_while_the_job_runs(jobs, engine):
    reported, gate = threading.Event(), threading.Event()

    def handler(ctx):
        assert ctx.progress(41.9)
        reported.set()
        gate.wait(10)

    jobs.register("report", handler)
    with running(jobs, engine):
        submitted = jobs.submit("report")
        assert reported.wait(10)
        assert jobs.get(submitted.job_id).percent_complete == 41
        gate.set()
        assert ended(jobs, submitted).percent_complete == 100


@pytest.mark.parametrize("percent", [101, -1, float("nan"), "50", True, None])
def test_a_percentage_outside_0_to_100_is_refused(jobs, engine, percent):
    errors = []

    def handler(ctx):
        try:
            ctx.progress(percent)
        except ValueError as error:
            errors.append(str(error))

    jobs.register("report", handler)
    with running(jobs, engine):
        ended(jobs, jobs.submit("report"))
    assert "0 to 100" in errors[0]


def test_a_handler_sees_that_its_job_was_cancelled_and_its_reports_are_refused(jobs, engine):
    started, cancelled, seen = threading.Event(), threading.Event(), []

    def handler(ctx):
        seen.append(ctx.is_cancelled)
        started.set()
        cancelled.wait(10)
        seen.extend((ctx.is_cancelled, ctx.progress(1), ctx.mark_effect_started(), ctx.complete()))
        ctx.raise_if_cancelled()

    jobs.register("long", handler)
    with running(jobs, engine) as app:
        submitted = jobs.submit("long")
        assert started.wait(10)
        assert jobs.cancel(submitted.job_id) is CancelResult.CANCELLED
        before = row(engine, submitted.job_id)
        cancelled.set()
        wait_until(lambda: not app.extensions["async_jobs"].dispatcher.running)
        assert seen == [False, True, False, False, False]
        assert row(engine, submitted.job_id) == before
        assert jobs.cancel(submitted.job_id) is CancelResult.ALREADY_TERMINAL


def test_an_attempt_that_was_recovered_is_told_and_changes_nothing(jobs, engine):
    started, lapsed, raised = threading.Event(), threading.Event(), []

    def handler(ctx):
        started.set()
        lapsed.wait(10)
        try:
            ctx.raise_if_cancelled()
        except Exception as error:
            raised.append(type(error).__name__)
            raise

    jobs.register("silent", handler, processing_timeout=5)
    with running(jobs, engine) as app:
        submitted = jobs.submit("silent")
        assert started.wait(10)
        back_date(engine, submitted.job_id, timedelta(minutes=1))
        assert jobs.recover() == 1
        lapsed.set()
        wait_until(lambda: not app.extensions["async_jobs"].dispatcher.running)
        assert raised == ["AttemptLost"]
        assert jobs.get(submitted.job_id).error.code == "processing-timeout"


def test_a_handler_may_complete_its_job_early(jobs, engine):
    jobs.register("early", lambda ctx: ctx.complete({"early": True}) and "late")
    with running(jobs, engine):
        job = ended(jobs, jobs.submit("early"))
        assert (job.status, job.result) == (JobStatus.COMPLETED, {"early": True})


def test_a_detached_job_goes_on_after_its_handler_and_frees_its_slot(jobs, engine):
    handed = []
    jobs.register("import", lambda ctx: handed.append(ctx.execution_token), detached=True)
    with running(jobs, engine, PROCESSING_CONCURRENCY_LIMIT=1) as app:
        submitted = [jobs.submit("import") for _ in range(3)]
        wait_until(lambda: len(handed) == 3 and not app.extensions["async_jobs"].dispatcher.running)
        assert {jobs.get(each.job_id).status for each in submitted} == {JobStatus.PROCESSING}
        tokens = {row(engine, each.job_id).execution_token: each.job_id for each in submitted}
        first, second, third = handed
        assert jobs.reporter(tokens[first], first).progress(50)
        assert jobs.reporter(str(tokens[first]), str(first)).complete()
        assert not jobs.reporter(tokens[second], first).complete()
        assert jobs.reporter(tokens[second]).fail("Broken", "", "x")
        assert jobs.get(tokens[second]).error.title == "Broken"
        assert jobs.reporter(tokens[third], third).complete(float("nan"))
        assert jobs.get(tokens[third]).error.code == "result-not-storable"
        assert not jobs.reporter(tokens[first], first).fail("too late")


def test_a_detached_handler_that_raises_fails_its_job(jobs, engine):
    jobs.register("import", raising(JobFailed("No broker")), detached=True)
    with running(jobs, engine):
        assert ended(jobs, jobs.submit("import")).error.title == "No broker"
