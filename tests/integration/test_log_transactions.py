"""The log beside a transaction of the handler's: what it kept is written before or with the completion."""

import time

import pytest

from flask_async_jobs import JobStatus
from tests.integration import transactions
from tests.integration.shared import module_database
from tests.integration.transactions import Work, note

KIND = "flask-sqlalchemy"
COMPLETED, FAILED = JobStatus.COMPLETED, JobStatus.FAILED


shared, engine = module_database("logs", "notes", prepare=transactions.metadata.create_all)


def lines(work, job_id):
    return [entry.line for entry in work.here.app.extensions["async_jobs"].log.entries(job_id, 0, 1000)]


def chat(ctx, first=0):
    for number in range(first, first + 5):
        assert ctx.log(str(number))


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("written", ["before", "after"])
def test_lines_beside_rows_that_are_not_committed_are_there_with_the_completion(engine, atomic, written):
    def handler(work, ctx, session):
        if written == "before":
            chat(ctx)
        note(session, "a")
        if written == "after":  # on SQLite nobody else can write from here on
            chat(ctx)
        if not atomic:
            ctx.complete(session=session)
            session.commit()

    with Work(engine, KIND, handler, atomic=atomic) as work:
        job, texts = work.run()
        assert (job.status, texts) == (COMPLETED, ["a"])
        assert lines(work, job.job_id) == [*"01234"]
        assert job.log_lines == 5


def test_a_completion_that_is_left_open_is_rolled_back_and_the_lines_are_kept(engine):
    def handler(work, ctx, session):
        chat(ctx)
        ctx.complete(session=session)
        begun = time.monotonic()
        chat(ctx, 5)
        work.seen.append(time.monotonic() - begun)

    with Work(engine, KIND, handler) as work:
        job, _ = work.run()
        assert job.status is FAILED
        assert lines(work, job.job_id) == [*"0123456789"]
    assert work.seen[0] < 1.5


def test_what_a_handler_that_raises_has_logged_is_kept_without_its_rows(engine):
    def handler(work, ctx, session):
        note(session, "a")
        chat(ctx)
        raise ValueError

    with Work(engine, KIND, handler, atomic=True) as work:
        job, texts = work.run()
        assert (job.status, texts) == (FAILED, [])
        assert lines(work, job.job_id) == [*"01234"]


@pytest.mark.parametrize("atomic", [True, False])
def test_lines_beside_a_completion_that_is_rolled_back_are_kept(engine, atomic):
    def handler(work, ctx, session):
        note(session, "a", parent=17)  # found out at the commit
        chat(ctx)
        if not atomic:
            ctx.complete(session=session)
            session.commit()

    with Work(engine, KIND, handler, atomic=atomic) as work:
        job, texts = work.run()
        assert (job.status, texts) == (FAILED, [])
        assert lines(work, job.job_id) == [*"01234"]


def test_lines_beside_uncommitted_rows_that_are_over_the_limit_fail_an_atomic_job(engine):
    def handler(work, ctx, session):
        note(session, "a")
        for _ in range(3):
            ctx.log("x" * (most // 2))

    most = 1_048_576
    with Work(engine, KIND, handler, atomic=True) as work:
        job, texts = work.run()
        work.here.jobs.shutdown()  # on PostgreSQL the job has ended before its handler
        assert (job.status, job.error.code, texts) == (FAILED, "output-limit-exceeded", [])
        assert job.log_lines == 2
