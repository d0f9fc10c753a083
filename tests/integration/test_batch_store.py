"""The store of batches: counts that add up, pages, and cancelling."""

import threading
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, text

from flask_async_jobs import JobError, JobRepository, JobStatus
from flask_async_jobs.batch_repository import BatchRepository
from flask_async_jobs.models import jobs_table
from tests.integration.batching import end_all, new_batch
from tests.integration.counting import counted
from tests.integration.rivals import at_once, rival, transaction
from tests.integration.stores import LEASE, RULES, edit, new_job
from tests.waiting import wait_until

HOUR = timedelta(hours=1)


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


@pytest.fixture
def batches(repository):
    return BatchRepository(repository)


def parts(batch):
    return batch.pending, batch.processing, batch.completed, batch.failed, batch.cancelled


# Counting


def test_a_summary_is_one_read_without_payloads_and_results(batches, engine):
    batch = batches.insert(new_batch())
    with counted(engine) as statements:
        assert batches.find(batch.batch_id) == batch
    assert len(statements) == len(statements.reads) == 1
    assert "payload" not in statements[0]
    assert "result" not in statements[0]


def test_the_parts_follow_the_items_and_the_revision_grows(batches, repository):
    batch = batches.insert(new_batch(5))
    assert (batch.status, parts(batch), batch.revision) == (JobStatus.PENDING, (5, 0, 0, 0, 0), 5)
    first, second, third = repository.claim(RULES, 3, LEASE)
    repository.complete(first.job_id, first.execution_token)
    repository.fail(second.job_id, second.execution_token, JobError.of("No"))
    repository.cancel(next(item.job_id for item in batches.items(batch.batch_id, 3, 1)))
    now = batches.find(batch.batch_id)
    assert (now.status, parts(now)) == (JobStatus.PROCESSING, (1, 1, 1, 1, 1))
    assert (now.revision, now.completed_at) == (11, None)
    repository.complete(third.job_id, third.execution_token)
    end_all(repository)
    ended = batches.find(batch.batch_id)
    assert (ended.status, parts(ended)) == (JobStatus.COMPLETED, (0, 0, 3, 1, 1))
    assert ended.completed_at == max(item.completed_at for item in batches.items(batch.batch_id, 0, 9))


def test_another_owners_batch_is_unknown(batches):
    batch = batches.insert(new_batch(owner="me"))
    for owner, known in (("me", True), ("you", False), ("", False)):
        assert bool(batches.find(batch.batch_id, owner)) is known
        assert (batches.items(batch.batch_id, 0, 9, owner) is not None) is known
    assert batches.cancel(batch.batch_id, "you") == 0
    assert batches.cancel(batch.batch_id, "me") == 3


def test_a_batch_whose_items_were_deleted_by_hand_has_ended(batches, engine):
    batch = batches.insert(new_batch())
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM async_jobs"))
    assert batches.find(batch.batch_id).status is JobStatus.COMPLETED
    assert batches.items(batch.batch_id, 0, 9) == []


# Pages


def test_pages_are_one_read_each_in_accepted_order(batches, repository, engine):
    batch = batches.insert(new_batch(5))
    batches.insert(new_batch(5))
    end_all(repository, 3, '{"price": 19.90}')
    seen, after = [], 0
    while page := batches.items(batch.batch_id, after, 2):
        seen += page
        after = page[-1].position
    assert [item.item_id for item in seen] == ["i1", "i2", "i3", "i4", "i5"]
    assert [item.position for item in seen] == [1, 2, 3, 4, 5]
    assert {item.result for item in seen} <= {None, '{"price": 19.90}'}
    with counted(engine) as statements:
        batches.items(batch.batch_id, 2, 2)
        assert batches.items(uuid4(), 0, 2) is None
    assert len(statements) == len(statements.reads) == 2
    assert "payload" not in statements[0]


def test_a_role_that_may_not_read_payloads_reads_summaries_and_pages(postgres_url):
    owner = create_engine(postgres_url)
    batches = BatchRepository(JobRepository(owner))
    batch = batches.insert(new_batch(key="k"))
    name = f"reader_{uuid4().hex}"
    columns = ", ".join(column.name for column in jobs_table().c if column.name != "payload")
    with owner.begin() as connection:
        connection.execute(text(f"CREATE ROLE {name} LOGIN PASSWORD 'x'"))
        connection.execute(text(f"GRANT SELECT ({columns}) ON async_jobs TO {name}"))
        connection.execute(text(f"GRANT SELECT ON async_job_batches TO {name}"))
    reader = create_engine(owner.url.set(username=name, password="x"))
    restricted = BatchRepository(JobRepository(reader))
    assert restricted.find(batch.batch_id) == restricted.find_by_key("", "k").view == batch
    assert len(restricted.items(batch.batch_id, 0, 9)) == 3
    assert restricted.find_all([batch.batch_id]) == {batch.batch_id: batch}
    reader.dispose()
    with owner.begin() as connection:
        connection.execute(text(f"DROP OWNED BY {name}"))
        connection.execute(text(f"DROP ROLE {name}"))
    owner.dispose()


# Cancelling


def test_cancelling_is_one_write_of_what_is_active_and_keeps_what_has_ended(batches, repository, engine):
    batch = batches.insert(new_batch(4))
    ended, running = repository.claim(RULES, 2, LEASE)
    repository.complete(ended.job_id, ended.execution_token)
    with counted(engine) as statements:
        assert batches.cancel(batch.batch_id) == 3
    assert len(statements) == 1
    assert parts(batches.find(batch.batch_id)) == (0, 0, 1, 0, 3)
    assert not repository.progress(running.job_id, running.execution_token, 5, LEASE)
    assert batches.cancel(batch.batch_id) == 0


def test_cancelling_waits_for_an_item_that_is_being_completed(batches, repository, engine):
    batch = batches.insert(new_batch(3))
    (claim,) = repository.claim(RULES, 1, LEASE)
    with transaction(engine) as connection:
        repository.within(connection).complete(claim.job_id, claim.execution_token)
        with rival(engine, lambda jobs: BatchRepository(jobs).cancel(batch.batch_id)) as cancelled:
            connection.commit()
    assert cancelled.result() == 2
    assert parts(batches.find(batch.batch_id)) == (0, 0, 1, 0, 2)


def test_many_who_cancel_at_once_do_not_wait_in_a_ring(batches, engine):
    ids = [batches.insert(new_batch(50)).batch_id for _ in range(2)]
    assert sum(at_once(8, lambda n: batches.cancel(ids[n % 2]))) == 100


# The sums while everything happens


def test_the_parts_add_up_at_every_moment(batches, repository, engine):
    """30 items fail, 5 are cancelled, 5 lose their process, and somebody asks all the time."""
    batch = batches.insert(new_batch(100))
    wrong, asked, done = [], [], threading.Event()

    def poll():
        last = 0
        while not done.is_set() or not asked:
            now = batches.find(batch.batch_id)
            asked.append(now)
            ended = now.pending + now.processing == 0
            if sum(parts(now)) != 100 or now.revision < last or (now.status is JobStatus.COMPLETED) != ended:
                wrong.append(now)
            last = now.revision

    poller = threading.Thread(target=poll)
    poller.start()
    for item in batches.items(batch.batch_id, 95, 5):
        repository.cancel(item.job_id)
    claims = repository.claim(RULES, 100, LEASE)
    for claim in claims[:30]:
        repository.fail(claim.job_id, claim.execution_token, JobError.of("No"))
    for claim in claims[35:]:
        repository.complete(claim.job_id, claim.execution_token)
    dead = [claim.job_id for claim in claims[30:35]]
    for job_id in dead:
        edit(engine, job_id, lease_expires_at=datetime.now(UTC) - HOUR)
    assert set(repository.recover(dead, RULES, HOUR, ()).values()) == {JobStatus.FAILED}
    wait_until(lambda: len(asked) >= 20)
    done.set()
    poller.join()
    assert wrong == []
    assert parts(batches.find(batch.batch_id)) == (0, 0, 60, 35, 5)
    assert batches.find(batch.batch_id).status is JobStatus.COMPLETED


def test_one_failed_item_is_counted_as_failed(batches, repository):
    batch = batches.insert(new_batch(1))
    (claim,) = repository.claim(RULES, 1, LEASE)
    repository.fail(claim.job_id, claim.execution_token, JobError.of("No", "It broke.", "broken"))
    assert parts(batches.find(batch.batch_id)) == (0, 0, 0, 1, 0)
    (item,) = batches.items(batch.batch_id, 0, 5)
    assert (item.status, item.error) == (JobStatus.FAILED, JobError("No", "It broke.", "broken"))


def test_a_job_of_its_own_is_no_item(batches, repository):
    batch = batches.insert(new_batch(1))
    repository.insert(new_job())
    assert batches.find(batch.batch_id).total == 1
