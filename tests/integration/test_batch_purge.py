"""A batch is removed whole or not at all."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from flask_async_jobs import JobRepository
from flask_async_jobs.batch_repository import BatchRepository
from flask_async_jobs.purge import Purge
from flask_async_jobs.records import TypeRules
from tests.integration.batching import age, end_all, new_batch, stored
from tests.integration.rivals import at_once
from tests.integration.stores import RULES, claimed, count, edit

HOUR = timedelta(hours=1)


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


@pytest.fixture
def batches(repository):
    return BatchRepository(repository)


def purge(repository, rules=RULES):
    return Purge(repository, BatchRepository(repository), lambda: rules, HOUR)


def test_a_batch_is_removed_whole_when_its_newest_item_may_go(batches, repository, engine):
    old, young = batches.insert(new_batch(key="k")), batches.insert(new_batch())
    end_all(repository)
    for batch in (old, young):
        age(engine, batch.batch_id, 2 * HOUR)
    last = batches.items(young.batch_id, 2, 1)[0].job_id
    edit(engine, last, last_updated_at=datetime.now(UTC) - HOUR + timedelta(minutes=1))
    single = claimed(repository)
    repository.complete(single.job_id, single.execution_token)
    assert batches.insert(new_batch(key="k")) is None
    assert purge(repository).sweep() == 3
    assert batches.find(old.batch_id) is None
    assert (stored(engine), count(engine)) == ((1, 4), 4)
    assert batches.insert(new_batch(key="k"))
    edit(engine, last, last_updated_at=datetime.now(UTC) - 2 * HOUR)
    assert purge(repository).sweep() == 3
    assert batches.find(young.batch_id) is None


def test_a_batch_with_an_active_item_stays_however_old(batches, repository, engine):
    batch = batches.insert(new_batch(3))
    end_all(repository, 2)
    with engine.begin() as connection:
        connection.execute(text("UPDATE async_job_batches SET created_at = '2020-01-01 00:00:00+00:00'"))
        connection.execute(
            text(
                "UPDATE async_jobs SET last_updated_at = '2020-01-01 00:00:00+00:00', "
                "completed_at = '2020-01-01 00:00:00+00:00' WHERE status = 'COMPLETED'"
            )
        )
    assert purge(repository).sweep() == 0
    assert batches.find(batch.batch_id).total == 3


def test_a_batch_of_another_application_stays(batches, repository, engine):
    batch = batches.insert(new_batch(type="thrice"))
    end_all(repository)
    age(engine, batch.batch_id, 2 * HOUR)
    assert purge(repository, [TypeRules("a")]).sweep() == 0
    assert purge(repository).sweep() == 3


def test_a_pass_removes_batches_a_few_at_a_time_and_is_bounded(batches, repository, engine, monkeypatch):
    monkeypatch.setattr("flask_async_jobs.purge.WHOLE", 2)
    monkeypatch.setattr("flask_async_jobs.purge.BATCHES", 2)
    for _ in range(5):
        batch = batches.insert(new_batch(2))
        end_all(repository)
        age(engine, batch.batch_id, 2 * HOUR)
    assert [purge(repository).sweep() for _ in range(3)] == [8, 2, 0]
    assert stored(engine) == (0, 0)


def test_two_passes_at_once_remove_each_batch_once(batches, repository, engine):
    for _ in range(6):
        batch = batches.insert(new_batch(5))
        end_all(repository)
        age(engine, batch.batch_id, 2 * HOUR)
    assert sum(at_once(4, lambda _: purge(repository).sweep())) == 30
    assert stored(engine) == (0, 0)
