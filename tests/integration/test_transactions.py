"""Submitting and cancelling in the caller's own transaction, with each kind of session."""

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from flask_async_jobs import AsyncJobs, CancelResult, Disposition, IdempotencyKeyConflict, JobStatus
from tests.integration import transactions
from tests.integration.shared import module_database
from tests.integration.transactions import KINDS, note, site

PLAIN = pytest.mark.parametrize("kind", ["session"])
POSTGRESQL = pytest.mark.parametrize("shared", ["postgresql"], indirect=True)


shared, engine = module_database("transactions", "notes", prepare=transactions.metadata.create_all)


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def jobs():
    jobs = AsyncJobs()
    jobs.register("quick", lambda: None)
    jobs.register("other", lambda: None)
    jobs.register("single", lambda: None, coalesce=True)
    return jobs


@pytest.fixture
def here(jobs, engine, kind):
    with site(jobs, engine, kind) as here:
        yield here


@pytest.fixture
def session(here):
    session = here.session()
    yield session
    session.close()


def test_a_job_exists_when_its_transaction_commits_and_not_before(here, session):
    note(session, "a")
    job = here.jobs.submit("quick", session=session)
    assert (job.disposition, here.jobs_stored()) == (Disposition.CREATED, 0)
    session.commit()
    assert here.jobs.get(job.job_id).status is JobStatus.PENDING
    assert here.texts() == ["a"]


def test_a_job_does_not_exist_when_its_transaction_is_rolled_back(here, session):
    job = here.jobs.submit("quick", session=session)
    note(session, "a")
    session.rollback()
    assert (here.jobs.get(job.job_id), here.texts()) == (None, [])


def test_a_job_shares_the_fate_of_its_savepoint(here, session):
    note(session, "kept")
    lost = session.begin_nested()
    note(session, "lost")
    here.jobs.submit("quick", idempotency_key="lost", session=session)
    lost.rollback()
    with session.begin_nested():
        here.jobs.submit("quick", idempotency_key="kept", session=session)
    session.commit()
    assert (here.texts(), here.jobs_stored()) == (["kept"], 1)
    assert here.jobs.submit("quick", idempotency_key="kept").disposition is Disposition.REPLAYED


def test_a_session_goes_on_after_the_transaction_of_a_job(here, session):
    for words in ("a", "b", "c"):
        note(session, words)
        here.jobs.submit("quick", session=session)
        here.jobs.submit("quick", session=session)
        session.commit()
    assert (here.texts(), here.jobs_stored()) == (["a", "b", "c"], 6)


def test_a_key_that_is_taken_leaves_the_transaction_usable(here, session):
    first = here.jobs.submit("quick", idempotency_key="k")
    note(session, "a")
    again = here.jobs.submit("quick", idempotency_key="k", session=session)
    assert (again.job_id, again.disposition) == (first.job_id, Disposition.REPLAYED)
    with pytest.raises(IdempotencyKeyConflict):
        here.jobs.submit("other", idempotency_key="k", session=session)
    note(session, "b")
    session.commit()
    assert (here.texts(), here.jobs_stored()) == (["a", "b"], 1)


def test_an_active_job_is_joined_from_within_a_transaction(here, session):
    first = here.jobs.submit("single")
    joined = here.jobs.submit("single", session=session)
    assert (joined.job_id, joined.disposition) == (first.job_id, Disposition.COALESCED)
    note(session, "a")
    session.commit()
    assert (here.texts(), here.jobs_stored()) == (["a"], 1)


def test_a_transaction_sees_the_jobs_that_it_submitted(here, session):
    keyed = here.jobs.submit("quick", idempotency_key="k", session=session)
    single = here.jobs.submit("single", session=session)
    again = here.jobs.submit("quick", idempotency_key="k", session=session)
    joined = here.jobs.submit("single", session=session)
    assert (again.job_id, again.disposition) == (keyed.job_id, Disposition.REPLAYED)
    assert (joined.job_id, joined.disposition) == (single.job_id, Disposition.COALESCED)
    session.commit()
    assert here.jobs_stored() == 2


def test_the_violation_of_another_constraint_surfaces_as_itself(here, session):
    note(session, "a")
    session.commit()
    here.jobs.submit("quick", session=session)
    with pytest.raises(IntegrityError, match="notes"):
        note(session, "a")
    session.rollback()
    here.jobs.submit("quick", session=session)
    note(session, "b", parent=-1)
    with pytest.raises(IntegrityError):
        session.commit()
    session.rollback()
    assert (here.texts(), here.jobs_stored()) == (["a"], 0)


def test_a_cancellation_holds_if_its_transaction_commits(here, session):
    job = here.jobs.submit("quick", owner="o")
    assert here.jobs.cancel(job.job_id, owner="p", session=session) is CancelResult.NOT_FOUND
    assert here.jobs.cancel(job.job_id, session=session) is CancelResult.CANCELLED
    assert here.jobs.get(job.job_id).status is JobStatus.PENDING
    session.rollback()
    assert here.jobs.get(job.job_id).status is JobStatus.PENDING
    assert here.jobs.cancel(job.job_id, owner="o", session=session) is CancelResult.CANCELLED
    note(session, "a")
    session.commit()
    assert (here.jobs.get(job.job_id).status, here.texts()) == (JobStatus.CANCELLED, ["a"])
    assert here.jobs.cancel(job.job_id, session=session) is CancelResult.ALREADY_TERMINAL


def test_a_session_on_another_engine_is_refused(here, tmp_path):
    other = create_engine(f"sqlite:///{tmp_path / 'other.sqlite'}")
    job = here.jobs.submit("quick")
    with Session(other) as session:
        with pytest.raises(ValueError, match="engine"):
            here.jobs.submit("quick", session=session)
        with pytest.raises(ValueError, match="engine"):
            here.jobs.cancel(job.job_id, session=session)
    other.dispose()


@PLAIN
def test_a_session_on_no_engine_is_refused(here):
    with Session() as session, pytest.raises(ValueError, match="engine"):
        here.jobs.submit("quick", session=session)


# The library's own table


@PLAIN
@POSTGRESQL
def test_a_check_that_the_application_put_on_the_table_surfaces_as_itself(here, session):
    with here.engine.begin() as connection:
        connection.execute(text("ALTER TABLE async_jobs ADD CONSTRAINT house_rule CHECK (owner <> 'banned')"))
    try:
        with pytest.raises(IntegrityError, match="house_rule"):
            here.jobs.submit("quick", owner="banned", session=session)
    finally:
        session.rollback()
        with here.engine.begin() as connection:
            connection.execute(text("ALTER TABLE async_jobs DROP CONSTRAINT house_rule"))


@PLAIN
def test_a_unique_index_that_the_application_put_on_the_table_surfaces_as_itself(here, session):
    with here.engine.begin() as connection:
        connection.execute(text("CREATE UNIQUE INDEX house_rule ON async_jobs (owner) WHERE type = 'quick'"))
    try:
        here.jobs.submit("quick", session=session)
        with pytest.raises(IntegrityError):
            here.jobs.submit("quick", session=session)
    finally:
        session.rollback()
        with here.engine.begin() as connection:
            connection.execute(text("DROP INDEX house_rule"))


@POSTGRESQL
def test_under_repeatable_read_a_key_that_was_taken_meanwhile_is_the_databases_refusal(engine, jobs):
    steady = engine.execution_options(isolation_level="REPEATABLE READ")
    with site(jobs, engine, "session") as here, Session(steady) as session:
        first = here.jobs.submit("quick", idempotency_key="before")
        assert here.jobs.submit("quick", idempotency_key="before", session=session).job_id == first.job_id
        taken = here.jobs.submit("quick", idempotency_key="k")
        with pytest.raises(DBAPIError) as raised:
            here.jobs.submit("quick", idempotency_key="k", session=session)
        assert raised.value.orig.sqlstate == "40001"
        session.rollback()
        assert here.jobs.submit("quick", idempotency_key="k", session=session).job_id == taken.job_id
        created = here.jobs.submit("quick", idempotency_key="l", session=session)
        session.commit()
        assert here.jobs.get(created.job_id)
