"""Two writers at one job: exactly one of them is taken, and the other one writes nothing."""

from datetime import timedelta

import pytest

from flask_async_jobs import JobError, JobRepository, JobStatus
from flask_async_jobs.models import jobs_table
from tests.integration.rivals import at_once, rival, transaction
from tests.integration.shared import module_database
from tests.integration.stores import LEASE, RULES, back_date, claimed, count, new_job, row

HOUR = timedelta(hours=1)
BROKEN = JobError.of("Broken", None, "broken")
WRITES = {
    "complete": lambda r, c: r.complete(c.job_id, c.execution_token),
    "fail": lambda r, c: r.fail(c.job_id, c.execution_token, BROKEN),
    "retry": lambda r, c: r.retry(c.job_id, c.execution_token, HOUR),
    "progress": lambda r, c: r.progress(c.job_id, c.execution_token, 50, LEASE),
    "renew": lambda r, c: r.renew([c], LEASE),
    "cancel": lambda r, c: r.cancel(c.job_id),
    "recover": lambda r, c: r.recover([c.job_id], RULES, HOUR, []),
}
ORDERS = [
    *[("complete", "cancel"), ("cancel", "complete"), ("fail", "cancel"), ("cancel", "fail")],
    *[("complete", "recover"), ("recover", "complete"), ("fail", "recover"), ("recover", "fail")],
    *[("renew", "recover"), ("recover", "renew"), ("progress", "recover"), ("recover", "progress")],
    *[("retry", "recover"), ("recover", "retry"), ("retry", "renew"), ("cancel", "retry"), ("cancel", "recover")],
    *[("retry", "complete"), ("complete", "retry"), ("cancel", "progress"), ("cancel", "renew")],
]
each_order = pytest.mark.parametrize(("first", "second"), ORDERS, ids=[f"{a}-before-{b}" for a, b in ORDERS])
each_key = pytest.mark.parametrize("key", [{"idempotency_key": "k"}, {"coalescing_key": "c"}], ids=str)


shared, engine = module_database("races")


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


@pytest.fixture
def zombie(repository, engine):
    """The claim of a job whose lease has lapsed, though its worker may still report."""
    claim = claimed(repository, "thrice")
    back_date(engine, claim.job_id, HOUR, "lease_expires_at")
    return claim


def row_in(connection, job_id):
    """Return a row as the transaction of a connection sees it."""
    jobs = jobs_table()
    return connection.execute(jobs.select().where(jobs.c.id == job_id)).one()


@each_order
def test_who_comes_second_is_refused_and_writes_nothing(repository, engine, zombie, first, second):
    with transaction(engine) as connection:
        assert WRITES[first](repository.within(connection), zombie)
        written = row_in(connection, zombie.job_id)
        with rival(engine, lambda store: WRITES[second](store, zombie)) as answer:
            connection.commit()
    assert not answer.result()
    assert row(engine, zombie.job_id) == written
    assert not WRITES[second](repository, zombie)
    assert row(engine, zombie.job_id) == written


@each_order
def test_who_comes_second_is_taken_when_the_first_one_rolls_back(repository, engine, zombie, first, second):
    before = row(engine, zombie.job_id)
    with transaction(engine) as connection:
        assert WRITES[first](repository.within(connection), zombie)
        with rival(engine, lambda store: WRITES[second](store, zombie)) as answer:
            connection.rollback()
    if not answer.result():  # renewal and recovery pass by a row that is locked, and come again
        assert row(engine, zombie.job_id) == before
        assert WRITES[second](repository, zombie)
    assert row(engine, zombie.job_id).revision == before.revision + (second != "renew")


@pytest.mark.parametrize("turn", range(5))
def test_of_all_that_end_a_job_at_once_one_is_taken(repository, engine, turn):
    claim = claimed(repository)
    back_date(engine, claim.job_id, HOUR, "lease_expires_at")
    before = row(engine, claim.job_id)
    ends = ["complete", "fail", "cancel", "recover", "complete", "cancel"]
    answers = at_once(len(ends), lambda index: bool(WRITES[ends[index]](repository, claim)))
    after = row(engine, claim.job_id)
    # A sweep passes by a row that another one has locked, so nobody may be missing but somebody else was taken.
    assert answers.count(True) == 1
    assert after.revision == before.revision + 1
    (winner,) = [end for end, answer in zip(ends, answers, strict=True) if answer]
    assert after.status == {"complete": "COMPLETED", "cancel": "CANCELLED"}.get(winner, "FAILED")


# Claims


def test_four_claimers_share_the_jobs_and_none_gets_one_twice(repository, engine):
    jobs = {repository.insert(new_job()).job_id for _ in range(20)}

    def claim(index):
        taken = []
        while batch := repository.claim(RULES, 3, LEASE):
            taken += batch
        return taken

    claims = [claim for taken in at_once(4, claim) for claim in taken]
    # A claimer stops when every row that it sees is another's, so a few may be left for the next look.
    claims += claim(0)
    assert len(claims) == 20
    assert {claim.job_id for claim in claims} == jobs
    assert {(claim.attempt, row(engine, claim.job_id).revision) for claim in claims} == {(1, 2)}
    assert {claim.execution_token for claim in claims} == {row(engine, job).execution_token for job in jobs}


@pytest.mark.parametrize("shared", ["postgresql"], indirect=True)
def test_a_claim_passes_by_what_another_one_takes_and_does_not_wait(repository, engine):
    jobs = {repository.insert(new_job()).job_id for _ in range(20)}
    with transaction(engine) as connection:
        ours = repository.within(connection).claim(RULES, 12, LEASE)
        with rival(engine, lambda store: store.claim(RULES, 20, LEASE)) as answer:
            theirs = answer.result(5)
            connection.commit()
    assert (len(ours), len(theirs)) == (12, 8)
    assert {claim.job_id for claim in [*ours, *theirs]} == jobs


def test_a_job_that_is_being_cancelled_is_not_claimed(repository, engine):
    job = repository.insert(new_job())
    with transaction(engine) as connection:
        repository.within(connection).cancel(job.job_id)
        written = row_in(connection, job.job_id)
        with rival(engine, lambda store: store.claim(RULES, 1, LEASE)) as answer:
            connection.commit()
    assert answer.result() == []
    assert row(engine, job.job_id) == written


def test_a_job_that_is_being_claimed_is_cancelled_as_a_running_one(repository, engine):
    job = repository.insert(new_job())
    with transaction(engine) as connection:
        (claim,) = repository.within(connection).claim(RULES, 1, LEASE)
        with rival(engine, lambda store: store.cancel(job.job_id)) as answer:
            connection.commit()
    assert answer.result().status is JobStatus.CANCELLED
    assert (answer.result().attempt, answer.result().revision) == (1, 3)
    written = row(engine, job.job_id)
    assert not repository.complete(claim.job_id, claim.execution_token)
    assert row(engine, job.job_id) == written


# Submissions


@each_key
def test_of_two_submissions_with_one_key_the_second_waits_and_stores_nothing(repository, engine, key):
    with transaction(engine) as connection:
        first = repository.within(connection).insert(new_job(**key))
        with rival(engine, lambda store: store.insert(new_job(**key))) as answer:
            connection.commit()
    assert answer.result() is None
    assert count(engine) == 1
    assert repository.find(first.job_id) == first


@each_key
def test_a_key_is_free_for_the_second_submission_when_the_first_is_rolled_back(repository, engine, key):
    with transaction(engine) as connection:
        repository.within(connection).insert(new_job(**key))
        with rival(engine, lambda store: store.insert(new_job(**key))) as answer:
            connection.rollback()
    assert count(engine) == 1
    assert repository.find(answer.result().job_id) == answer.result()


@each_key
def test_of_many_submissions_with_one_key_at_once_one_is_stored(repository, engine, key):
    stored = at_once(12, lambda index: repository.insert(new_job(**key)))
    assert len([job for job in stored if job]) == 1
    assert count(engine) == 1
