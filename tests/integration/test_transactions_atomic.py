"""atomic=True: a job is completed in the transaction of its handler's `db.session`, or leaves no rows."""

from datetime import timedelta

import pytest

from flask_async_jobs import CancelResult, JobStatus, RetryLater
from tests.integration import transactions
from tests.integration.shared import empty, module_database
from tests.integration.transactions import Work, note
from tests.waiting import wait_until

KIND = "flask-sqlalchemy"
COMPLETED, FAILED, CANCELLED = JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED


shared, engine = module_database("atomic", "notes", prepare=transactions.metadata.create_all)


def test_an_atomic_job_is_completed_with_the_rows_of_its_handler(engine):
    def handler(work, ctx, session):
        note(session, "a")
        return {"n": 1}

    with Work(engine, KIND, handler, atomic=True) as work:
        job, texts = work.run()
    assert (job.status, job.result, texts) == (COMPLETED, {"n": 1}, ["a"])


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (lambda session: session.begin_nested() and object(), "result-not-storable"),
        (lambda session: note(session, "b", parent=-1), "processing-error"),
        (lambda session: note(session, "a"), "processing-error"),
        (lambda session: 1 / 0, "processing-error"),
    ],
    ids=["an unstorable result", "a commit that fails", "a statement that fails", "an error"],
)
def test_an_atomic_job_that_fails_leaves_no_rows(engine, act, code):
    def handler(work, ctx, session):
        note(session, "a")
        return act(session)

    with Work(engine, KIND, handler, atomic=True) as work:
        job, texts = work.run()
        assert (job.status, job.error.code, texts) == (FAILED, code, [])
        assert work.run()[0].status is FAILED, "the slot is free"


def test_an_atomic_job_that_is_cancelled_while_it_runs_leaves_no_rows(engine):
    def handler(work, ctx, session):
        work.entered.set()
        work.gate.wait(10)
        note(session, "a")

    with Work(engine, KIND, handler, atomic=True) as work:
        job_id = work.start()
        assert work.entered.wait(5)
        assert work.here.jobs.cancel(job_id) is CancelResult.CANCELLED
        work.gate.set()
        wait_until(lambda: not work.here.app.extensions["async_jobs"].dispatcher.running)
        assert (work.end(job_id).status, work.here.texts()) == (CANCELLED, [])


@pytest.mark.parametrize("error", [ConnectionError(), RetryLater(timedelta(0))], ids=["retry_on", "RetryLater"])
def test_an_atomic_job_that_is_tried_again_leaves_the_rows_of_its_last_attempt_alone(engine, error):
    def handler(work, ctx, session):
        work.seen.append(ctx.attempt)
        note(session, f"{len(work.seen)}")
        if len(work.seen) == 1:
            raise error

    options = {"atomic": True, "max_attempts": 2, "retry_on": ConnectionError, "backoff": 0.001}
    with Work(engine, KIND, handler, **options) as work:
        job_id = work.start()
        wait_until(lambda: work.seen and not work.here.app.extensions["async_jobs"].dispatcher.running)
        work.here.app.extensions["async_jobs"].wake()
        assert (work.end(job_id).status, work.here.texts()) == (COMPLETED, ["2"])


@pytest.mark.parametrize("shared", ["postgresql"], indirect=True)
def test_under_repeatable_read_an_atomic_job_is_completed_exactly_when_its_rows_are_there(engine):
    def handler(work, ctx, session):
        session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
        note(session, "a")
        if work.seen:
            assert ctx.progress(50)  # changes the row after the snapshot of the handler's transaction

    with Work(engine, KIND, handler, atomic=True) as work:
        job, texts = work.run()
        assert (job.status, texts) == (COMPLETED, ["a"])
        work.seen.append("now with progress")
        empty(engine, "notes")
        job, texts = work.run()
        assert (job.status, texts) in [(COMPLETED, ["a"]), (FAILED, [])]
