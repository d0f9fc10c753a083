"""A row that somebody holds: one transaction of the application's that takes its time harms nobody else.

An application may cancel a job, or complete it, in a transaction of its own that is long. On SQLite that holds the
whole database, so these are promises of PostgreSQL alone.
"""

import threading
from datetime import timedelta

import pytest
from sqlalchemy import create_engine

from flask_async_jobs import AsyncJobs, JobRepository, JobStatus
from tests.integration.processes import running
from tests.integration.rivals import is_blocked, rival, transaction
from tests.integration.stores import LEASE, RULES, back_date, claimed, new_job, row
from tests.waiting import wait_until

HOUR = timedelta(hours=1)


@pytest.fixture
def engine(postgres_url):
    engine = create_engine(postgres_url)
    yield engine
    engine.dispose()


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


class Gates:
    """Handlers that wait until they are let go, each type by itself."""

    def __init__(self):
        self.jobs = AsyncJobs()
        self.gates = {}
        self.entered = []
        self.register("first")
        self.register("second")
        self.register("hasty", timeout=0.2)

    def register(self, type, **options):
        gate = self.gates[type] = threading.Event()

        def handler(ctx):
            self.entered.append(ctx.job_id)
            gate.wait(30)

        self.jobs.register(type, handler, **options)

    def start(self, type):
        """Submit a job, wait until its handler runs, and return its id."""
        job = self.jobs.submit(type).job_id
        wait_until(lambda: job in self.entered)
        return job

    def open(self, *types):
        for type in types:
            self.gates[type].set()


@pytest.fixture
def gates():
    gates = Gates()
    yield gates
    gates.open(*gates.gates)


def hold(connection, repository, job_id):
    """Cancel a job in a transaction that does not end yet."""
    assert repository.within(connection).cancel(job_id)


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("claim", lambda store, claims: store.claim(RULES, 9, LEASE)),
        ("give_back", lambda store, claims: store.give_back([c.execution_token for c in claims])),
        ("renew", lambda store, claims: store.renew(claims, LEASE)),
        ("complete_all", lambda store, claims: store.complete_all(claims)),
        ("recover", lambda store, claims: store.recover([c.job_id for c in claims], RULES, HOUR, [])),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_done_for_many_jobs_passes_by_a_row_that_is_held(repository, engine, name, ask):
    claims = [claimed(repository), claimed(repository)]
    for each in claims:
        back_date(engine, each.job_id, HOUR, "lease_expires_at")
    waiting = [repository.insert(new_job()).job_id for _ in range(2)] if name == "claim" else []
    held, other = waiting or [claim.job_id for claim in claims]
    with transaction(engine) as connection:
        hold(connection, repository, held)
        before = row(engine, held)
        with rival(engine, lambda store: ask(store, claims)) as answer:
            done = answer.result(5)
            assert row(engine, held) == before
            connection.rollback()
    taken = {each.job_id for each in done} if name == "claim" else done
    assert taken == 1 if name == "renew" else set(taken) == {other}


def test_a_job_whose_row_is_held_does_not_keep_another_one_from_its_end(gates, repository, engine):
    with running(gates.jobs, engine):
        held, other = gates.start("first"), gates.start("second")
        with transaction(engine) as connection:
            hold(connection, repository, held)
            gates.open("first")
            wait_until(lambda: is_blocked(engine))
            gates.open("second")
            try:
                wait_until(lambda: gates.jobs.get(other).status is JobStatus.COMPLETED, timeout=2)
            finally:
                connection.rollback()
        wait_until(lambda: gates.jobs.get(held).status is JobStatus.COMPLETED)


def test_a_job_that_is_held_past_its_time_limit_does_not_stop_the_renewal_of_other_leases(
    gates, repository, engine
):
    with running(gates.jobs, engine, PROCESSING_LEASE=2):
        other, held = gates.start("first"), gates.start("hasty")
        begun = row(engine, other).lease_expires_at
        with transaction(engine) as connection:
            hold(connection, repository, held)
            try:
                # Three renewals are due before the first lease would have lapsed.
                wait_until(lambda: row(engine, other).lease_expires_at > begun + timedelta(seconds=1), timeout=4)
            finally:
                connection.rollback()
                gates.open("first", "hasty")
