"""From the commit of a submission to the commit of its handler.

Completing a job in the handler's own transaction: COMPLETED if and only if the handler's rows are committed.
"""

import threading

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from flask_async_jobs import AsyncJobs, AttemptLost, CancelResult, JobFailed, JobStatus
from tests.integration import transactions
from tests.integration.shared import module_database
from tests.integration.transactions import KINDS, Work, note, site
from tests.waiting import wait_until

COMPLETED, FAILED, CANCELLED = JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED


shared, engine = module_database("completions", "notes", prepare=transactions.metadata.create_all)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def test_a_handler_starts_after_the_commit_and_then_at_once(engine, kind):
    jobs, started = AsyncJobs(), threading.Event()
    jobs.register("signal", started.set)
    with site(jobs, engine, kind, run=True) as here:
        session = here.session()
        note(session, "a")
        jobs.submit("signal", session=session)
        here.app.extensions["async_jobs"].wake()
        assert not started.wait(0.2)
        session.commit()
        assert started.wait(5), "it would have waited an hour for the poll"
        session.close()
        wait_until(
            lambda: [job.status for job in here.app.extensions["async_jobs"].repository.newest(2)] == ["COMPLETED"]
        )


def test_every_job_of_a_transaction_starts_and_those_of_the_next_one_too(engine, kind):
    jobs, done = AsyncJobs(), []
    jobs.register("count", lambda ctx: done.append(ctx.job_id))
    with site(jobs, engine, kind, run=True) as here:
        session = here.session()
        for _ in range(2):
            submitted = [jobs.submit("count", session=session).job_id for _ in range(3)]
            session.commit()
            wait_until(lambda: set(submitted) <= set(done))  # noqa: B023 - asked at once
        session.close()
    assert len(done) == 6


def test_a_job_is_completed_with_the_rows_of_its_handler(engine, kind):
    def handler(work, ctx, session):
        note(session, "a")
        assert ctx.complete({"n": 1}, session=session)
        assert work.here.jobs.get(ctx.job_id).status is JobStatus.PROCESSING
        session.commit()
        session.close()

    with Work(engine, kind, handler) as work:
        job, texts = work.run()
    assert (job.status, job.result, job.percent_complete, texts) == (COMPLETED, {"n": 1}, 100, ["a"])


def test_a_job_whose_handler_rolls_back_fails_and_leaves_no_rows(engine, kind):
    def handler(work, ctx, session):
        note(session, "a")
        ctx.complete(session=session)
        session.rollback()

    with Work(engine, kind, handler) as work:
        job, texts = work.run()
    assert (job.status, job.error.code, texts) == (FAILED, "processing-error", [])


def test_a_job_whose_handler_returns_without_a_commit_fails_and_leaves_no_rows(engine, kind):
    def handler(work, ctx, session):
        note(session, "a")
        ctx.complete(session=session)

    with Work(engine, kind, handler) as work:
        job, texts = work.run()
    assert (job.status, job.error.code, texts) == (FAILED, "processing-error", [])


def test_a_job_whose_handler_raises_before_its_commit_fails_and_leaves_no_rows(engine, kind):
    def handler(work, ctx, session):
        note(session, "a")
        ctx.complete(session=session)
        raise JobFailed("No")

    with Work(engine, kind, handler) as work:
        job, texts = work.run()
    assert (job.status, job.error.title, texts) == (FAILED, "No", [])


def test_a_job_whose_handler_raises_after_its_commit_stays_completed(engine, kind):
    def handler(work, ctx, session):
        note(session, "a")
        ctx.complete(session=session)
        session.commit()
        raise JobFailed("No")

    with Work(engine, kind, handler) as work:
        job, texts = work.run()
    assert (job.status, job.error, texts) == (COMPLETED, None, ["a"])


def test_a_job_that_was_cancelled_meanwhile_is_lost_to_its_handler_and_leaves_no_rows(engine, kind):
    def handler(work, ctx, session):
        work.entered.set()
        work.gate.wait(10)
        note(session, "a")
        try:
            ctx.complete(session=session)
            session.commit()
        except AttemptLost as error:
            work.seen.append(error)
            raise
        finally:
            session.close()

    with Work(engine, kind, handler) as work:
        job_id = work.start()
        assert work.entered.wait(5)
        assert work.here.jobs.cancel(job_id) is CancelResult.CANCELLED
        work.gate.set()
        wait_until(lambda: work.seen)
        assert (work.end(job_id).status, work.here.texts()) == (CANCELLED, [])


@pytest.mark.parametrize("kind", ["flask-sqlalchemy"])
def test_a_job_whose_handler_cannot_commit_fails_and_what_it_wrote_holds_up_nobody(engine, kind):
    def handler(work, ctx, session):
        note(session, "a", parent=-1)
        session.commit()

    with Work(engine, kind, handler) as work:
        for _ in range(2):
            job, texts = work.run()
            assert (job.status, job.error.code, texts) == (FAILED, "processing-error", [])


def test_a_result_that_cannot_be_stored_is_refused_and_the_transaction_goes_on(engine, kind):
    def handler(work, ctx, session):
        with pytest.raises(ValueError, match="JSON"):
            ctx.complete(float("nan"), session=session)
        note(session, "a")
        ctx.complete([1], session=session)
        session.commit()

    with Work(engine, kind, handler) as work:
        job, texts = work.run()
    assert (job.status, job.result, texts) == (COMPLETED, [1], ["a"])


def test_a_session_on_another_engine_does_not_complete_a_job(engine, kind, tmp_path):
    other = create_engine(f"sqlite:///{tmp_path / 'other.sqlite'}")

    def handler(work, ctx, session):
        with Session(other) as foreign, pytest.raises(ValueError, match="engine"):
            ctx.complete(session=foreign)

    with Work(engine, kind, handler) as work:
        assert work.run()[0].status is COMPLETED
    other.dispose()
