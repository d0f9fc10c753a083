"""What a purge removes, and what it never does."""

from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import create_engine

from flask_async_jobs import AsyncJobs, JobRepository, JobStatus
from flask_async_jobs.batch_repository import BatchRepository
from flask_async_jobs.purge import Purge
from flask_async_jobs.records import TypeRules
from tests.integration.counting import counted
from tests.integration.processes import application, running
from tests.integration.stores import LEASE, RULES, back_date, claimed, count, edit, new_job
from tests.waiting import wait_until

HOURS = timedelta(hours=2)


@pytest.fixture
def jobs():
    jobs = AsyncJobs()
    jobs.register("a", lambda: None)
    return jobs


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


def purge(repository, rules=RULES):
    return Purge(repository, BatchRepository(repository), lambda: rules, LEASE)


def completed(repository, engine, age=HOURS, **values):
    claim = claimed(repository, **values)
    repository.complete(claim.job_id, claim.execution_token)
    back_date(engine, claim.job_id, age, "created_at", "last_updated_at", "completed_at")
    return claim.job_id


def test_a_job_is_removed_when_its_retention_is_over_and_not_before(jobs, repository, engine):
    old, young = completed(repository, engine), completed(repository, engine, timedelta(minutes=59))
    with application(jobs, engine).app_context():
        assert jobs.purge(older_than=0) == 1
        assert jobs.purge() == 0
    assert repository.find(old) is None
    assert repository.find(young).status is JobStatus.COMPLETED


def test_a_longer_age_can_be_asked_for(jobs, repository, engine):
    completed(repository, engine)
    with application(jobs, engine).app_context():
        assert jobs.purge(older_than="P1D") == 0
        assert jobs.purge(older_than=timedelta(minutes=61)) == 1


@pytest.mark.parametrize("age", ["soon", -1, True])
def test_an_age_that_makes_no_sense_is_refused(jobs, engine, age):
    with application(jobs, engine).app_context(), pytest.raises(ValueError, match="older_than"):
        jobs.purge(older_than=age)


def test_an_active_job_is_never_removed(jobs, repository, engine):
    waiting = repository.insert(new_job()).job_id
    back_date(engine, waiting, HOURS)
    back_date(engine, claimed(repository, "thrice").job_id, HOURS, "created_at", "last_updated_at", "started_at")
    with application(jobs, engine).app_context():
        assert jobs.purge() == 0
    assert count(engine) == 2


def test_a_job_of_another_application_is_left_alone(jobs, repository, engine):
    completed(repository, engine, type="thrice")
    with application(jobs, engine).app_context():
        assert jobs.purge() == 0


def test_a_part_of_a_batch_is_left_alone(jobs, repository, engine):
    edit(engine, completed(repository, engine), batch_id=uuid4(), item_id="i", item_position=1)
    with application(jobs, engine).app_context():
        assert jobs.purge() == 0


def test_a_key_is_free_when_its_job_is_removed_and_not_before(jobs, repository, engine):
    completed(repository, engine, idempotency_key="k")
    with application(jobs, engine).app_context():
        assert repository.insert(new_job(idempotency_key="k")) is None
        jobs.purge()
        assert repository.insert(new_job(idempotency_key="k"))


def test_a_pass_goes_on_in_short_transactions_until_nothing_is_left(repository, engine, monkeypatch):
    monkeypatch.setattr("flask_async_jobs.purge.BATCH", 2)
    for _ in range(5):
        completed(repository, engine)
    with counted(engine) as statements:
        assert purge(repository, [TypeRules("a")]).sweep() == 5
    assert sum("DELETE" in statement for statement in statements) == 4  # the last one looks for batches


def test_a_pass_is_bounded(repository, engine, monkeypatch):
    monkeypatch.setattr("flask_async_jobs.purge.BATCH", 1)
    monkeypatch.setattr("flask_async_jobs.purge.BATCHES", 2)
    for _ in range(3):
        completed(repository, engine)
    assert [Purge(repository, BatchRepository(repository), lambda: RULES, LEASE).sweep() for _ in range(3)] == [
        2,
        1,
        0,
    ]


def test_a_row_that_somebody_has_locked_stays(jobs, postgres_url):
    engine = create_engine(postgres_url)
    repository = JobRepository(engine)
    locked, other = completed(repository, engine), completed(repository, engine)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"SELECT 1 FROM async_jobs WHERE id = '{locked}' FOR UPDATE")
        with application(jobs, engine).app_context():
            assert jobs.purge() == 1
    assert repository.find(other) is None
    assert repository.find(locked)
    engine.dispose()


def test_the_schedule_is_the_applications_wish(jobs, repository, engine):
    old = completed(repository, engine)
    with running(jobs, engine, PURGE_INTERVAL=0.1, RECOVERY_SCAN_INTERVAL=0.1) as app:
        passes = app.extensions["async_jobs"]._running._scheduler._scheduler.get_jobs()
        assert [each.id for each in passes] == ["recovery"]
        assert repository.find(old)
    with running(jobs, engine, PURGE_ENABLED=True, PURGE_INTERVAL=0.1):
        wait_until(lambda: repository.find(old) is None)
