"""Completions that go together: none is lost, none is taken for another, none waits without need."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, event

from flask_async_jobs import JobRepository, JobStatus, StorageUnavailable
from flask_async_jobs.completions import Completions
from flask_async_jobs.records import Claim
from tests.integration.counting import counted
from tests.integration.stores import LEASE, RULES, new_job, row
from tests.waiting import wait_until


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


def claims_of(repository, number):
    for _ in range(number):
        repository.insert(new_job())
    return repository.claim(RULES, number, LEASE)


def stale(claim):
    return replace(claim, execution_token=uuid4())


def test_several_attempts_complete_in_one_statement(repository, engine):
    claims = claims_of(repository, 5)
    with counted(engine) as statements:
        assert repository.complete_all(claims[:4]) == {claim.job_id for claim in claims[:4]}
    assert len(statements) == 1
    for claim in claims[:4]:
        stored = row(engine, claim.job_id)
        assert (stored.status, stored.percent_complete, stored.execution_token) == ("COMPLETED", 100, None)
        assert stored.completed_at == stored.last_updated_at
    assert repository.find(claims[4].job_id).status is JobStatus.PROCESSING


def test_attempts_that_are_lost_change_nothing_and_harm_no_other(repository, engine):
    first, cancelled, overtaken = claims_of(repository, 3)
    repository.cancel(cancelled.job_id)
    before = row(engine, cancelled.job_id), row(engine, overtaken.job_id)
    assert repository.complete_all([first, cancelled, stale(overtaken)]) == {first.job_id}
    assert (row(engine, cancelled.job_id), row(engine, overtaken.job_id)) == before


def test_a_lone_completion_is_one_statement(repository, engine):
    (claim,) = claims_of(repository, 1)
    with counted(engine) as statements:
        assert Completions(repository).write(claim)
    assert len(statements) == 1


def test_those_that_come_meanwhile_go_together_and_each_learns_its_own_fate(repository, engine):
    completions, claims = Completions(repository), claims_of(repository, 20)
    repository.cancel(claims[7].job_id)
    hold, held = threading.Event(), threading.Event()

    def slow_first(*args):
        if not held.is_set():
            held.set()
            hold.wait(10)

    event.listen(engine, "before_cursor_execute", slow_first)
    with counted(engine) as statements, ThreadPoolExecutor(20) as pool:
        fates = [pool.submit(completions.write, claims[0])]
        assert held.wait(10)
        fates += [pool.submit(completions.write, claim) for claim in claims[1:]]
        wait_until(lambda: len(completions._waiting) == 19)
        hold.set()
        written = [fate.result(10) for fate in fates]
    assert written == [n != 7 for n in range(20)]
    assert len(statements) <= 4  # the first, the others together, and the lost one by itself


def test_an_outage_is_met_by_each(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path}/none.sqlite")
    completions = Completions(JobRepository(engine))
    for _ in range(2):
        with pytest.raises(StorageUnavailable):
            completions.write(Claim(uuid4(), "a", "", 1, uuid4(), None, None))
    engine.dispose()


def test_a_row_that_somebody_has_locked_delays_only_itself(postgres_url):
    engine = create_engine(postgres_url)
    repository = JobRepository(engine)
    locked, *others = claims_of(repository, 3)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"SELECT 1 FROM async_jobs WHERE id = '{locked.job_id}' FOR UPDATE")
        assert repository.complete_all([locked, *others]) == {claim.job_id for claim in others}
    assert repository.complete(locked.job_id, locked.execution_token)
    engine.dispose()
