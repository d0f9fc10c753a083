"""Caps under many submissions at once: exactly as many are active as the cap says, never one more or less."""

from collections import Counter

import pytest
from sqlalchemy.orm import Session

from flask_async_jobs import AsyncJobs, JobRepository, JobStatus, TooManyActive
from flask_async_jobs.records import Cap
from tests.integration.processes import application
from tests.integration.rivals import at_once, rival, transaction
from tests.integration.shared import module_database
from tests.integration.stores import count, new_job

ONE = [Cap("type", 1)]


shared, engine = module_database("caps")


@pytest.fixture
def jobs():
    jobs = AsyncJobs()
    jobs.register("free", lambda: None)
    jobs.register("capped", lambda: None, max_active=7)
    jobs.register("single", lambda: None, max_active=7, coalesce=True)
    return jobs


def crowd(app, jobs, number, **submission):
    """Submit from many threads at once and count the answers; `owner` may be a list to go round."""
    owners = submission.pop("owners", [None])
    type = submission.pop("type", "capped")

    def submit(index):
        with app.app_context():
            try:
                return jobs.submit(type, owner=owners[index % len(owners)], **submission).disposition.value
            except TooManyActive:
                return "refused"

    return Counter(at_once(number, submit))


@pytest.mark.parametrize(
    ("settings", "type"),
    [({}, "capped"), ({"MAX_ACTIVE": 7}, "free"), ({"MAX_ACTIVE_PER_OWNER": 7}, "free")],
    ids=["max_active", "MAX_ACTIVE", "MAX_ACTIVE_PER_OWNER"],
)
def test_of_forty_submissions_at_once_as_many_are_stored_as_the_cap_allows(jobs, engine, settings, type):
    app = application(jobs, engine, **settings)
    assert crowd(app, jobs, 40, type=type) == {"created": 7, "refused": 33}
    assert count(engine) == 7


def test_the_cap_of_an_owner_is_counted_for_each(jobs, engine):
    app = application(jobs, engine, MAX_ACTIVE_PER_OWNER=3)
    assert crowd(app, jobs, 40, type="free", owners=["a", "b", "c", None]) == {"created": 12, "refused": 28}


def test_the_smallest_of_several_caps_decides(jobs, engine):
    app = application(jobs, engine, MAX_ACTIVE=5, MAX_ACTIVE_PER_OWNER=4)
    assert crowd(app, jobs, 20, owners=["a", "b"]) == {"created": 5, "refused": 15}


def test_a_cap_neither_refuses_a_replay_nor_a_coalesced_submission(jobs, engine):
    app = application(jobs, engine, MAX_ACTIVE=1)
    assert crowd(app, jobs, 12, type="single") == {"created": 1, "coalesced": 11}
    with app.app_context():
        jobs.cancel(next(iter(JobRepository(engine).newest(1))).job_id)
    assert crowd(app, jobs, 12, idempotency_key="k") == {"created": 1, "replayed": 11}


@pytest.mark.parametrize("turn", range(3))
def test_each_job_that_ends_makes_room_for_one_more(jobs, engine, turn):
    app = application(jobs, engine)
    crowd(app, jobs, 10)
    repository = JobRepository(engine)
    for job in repository.newest(3):
        repository.cancel(job.job_id)
    assert crowd(app, jobs, 20) == {"created": 3, "refused": 17}
    assert sum(job.status is JobStatus.PENDING for job in repository.newest(100)) == 7


@pytest.mark.parametrize("commits", [True, False])
def test_a_submission_waits_for_one_whose_transaction_decides_whether_there_is_room(engine, commits):
    with transaction(engine) as connection:
        assert JobRepository(engine).within(connection).insert(new_job(), ONE)
        with rival(engine, lambda store: store.insert(new_job(), ONE)) as answer:
            connection.commit() if commits else connection.rollback()
    assert bool(answer.result()) is not commits
    assert count(engine) == 1


@pytest.mark.parametrize("shared", ["postgresql"], indirect=True)
def test_an_uncapped_submission_waits_for_nobody(engine):
    with transaction(engine) as connection:
        JobRepository(engine).within(connection).insert(new_job(), ONE)
        with rival(engine, lambda store: store.insert(new_job())) as answer:
            assert answer.result(5)
            connection.commit()


@pytest.mark.parametrize("shared", ["postgresql"], indirect=True)
def test_a_cap_is_refused_in_a_transaction_that_would_count_what_is_over(jobs, engine):
    steady = engine.execution_options(isolation_level="REPEATABLE READ")
    with application(jobs, engine, MAX_ACTIVE=1).app_context(), Session(steady) as session:
        with pytest.raises(ValueError, match="cannot be exact in a REPEATABLE READ transaction"):
            jobs.submit("free", session=session)
        session.commit()
    assert count(engine) == 0
