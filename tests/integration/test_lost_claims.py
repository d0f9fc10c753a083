"""A claim whose answer is lost takes a job that nobody runs: it is given back, and no outage fails it."""

from types import SimpleNamespace
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, exc

from flask_async_jobs import AsyncJobs, JobRepository, JobStatus, StorageUnavailable
from flask_async_jobs.lost_claims import LATEST, LostClaims
from flask_async_jobs.watchdog import Watchdog
from tests.integration.counting import counted
from tests.integration.processes import application
from tests.integration.stores import LEASE, RULES, new_job, row
from tests.servers.proxy import proxied
from tests.waiting import wait_until


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


def test_what_was_claimed_with_a_mark_is_given_back_and_nothing_else(repository, engine):
    stays, lost = uuid4(), uuid4()
    first, second, third = (repository.insert(new_job("thrice")).job_id for _ in range(3))
    (kept,) = repository.claim(RULES, 1, LEASE, stays)
    assert [claim.job_id for claim in repository.claim(RULES, 1, LEASE, lost)] == [second]
    before = row(engine, second)
    assert repository.give_back([uuid4(), lost]) == [second]
    assert repository.give_back([lost]) == []
    after = row(engine, second)
    assert (after.status, after.attempt) == ("PENDING", 0)
    assert after.execution_token is after.lease_expires_at is None
    assert (after.revision, after.available_at) == (before.revision + 1, before.available_at)
    assert repository.is_running(first, kept.execution_token)
    assert [claim.job_id for claim in repository.claim(RULES, 9, LEASE)] == [second, third]


def test_what_was_cancelled_or_completed_meanwhile_is_not_given_back(repository):
    mark = uuid4()
    cancelled, completed = (repository.insert(new_job()).job_id for _ in range(2))
    _, claim = repository.claim(RULES, 2, LEASE, mark)
    assert repository.cancel(cancelled)
    assert repository.complete(completed, claim.execution_token)
    assert repository.give_back([mark]) == []
    assert repository.find(cancelled).status is JobStatus.CANCELLED


def broken(invalidated=True, statement="UPDATE"):
    """Return what `Database.run` raises, with the error of the driver as its cause."""
    error = StorageUnavailable("away")
    error.__cause__ = exc.OperationalError(statement, {}, Exception(), connection_invalidated=invalidated)
    return error


class Giving:
    """In place of a repository: notes which marks are asked for."""

    def __init__(self):
        self.asked = []

    def give_back(self, marks):
        self.asked.append(marks)
        return []


def lose(claims, error):
    with pytest.raises(type(error)), claims.watched() as mark:
        raise error
    return mark


def test_only_a_claim_that_may_have_taken_effect_is_looked_for():
    store = Giving()
    claims = LostClaims(store, lambda: None)
    with claims.watched():
        pass
    refused = [broken(invalidated=False), broken(statement=None), StorageUnavailable("no connection came")]
    for error in [*refused, ValueError()]:
        lose(claims, error)
    assert claims.give_back_once() == 0
    assert store.asked == []
    marks = [lose(claims, broken()), lose(claims, broken())]
    claims.give_back_once()
    claims.give_back_once()  # the network may deliver it later
    assert store.asked == [marks, marks]


def test_a_claim_is_forgotten_when_no_network_can_deliver_it_any_more(monkeypatch):
    store, clock = Giving(), SimpleNamespace(monotonic=lambda: now[0])
    now = [0.0]
    monkeypatch.setattr("flask_async_jobs.lost_claims.time", clock)
    claims = LostClaims(store, lambda: None)
    lose(claims, broken())
    now[0] = LATEST / 2
    later = lose(claims, broken())
    now[0] = LATEST + 1
    claims.give_back_once()
    assert store.asked == [[later]]


@pytest.fixture
def jobs():
    jobs = AsyncJobs()
    jobs.register("quick", lambda: None)
    return jobs


@pytest.fixture
def store(postgres_url):
    """The job store, without the network that freezes."""
    engine = create_engine(postgres_url)
    yield JobRepository(engine)
    engine.dispose()


@pytest.mark.parametrize("backlog", [1, 20])
@pytest.mark.parametrize("lost", ["the answer", "the claim, until later"])
def test_an_outage_between_a_claim_and_its_answer_fails_no_job(jobs, store, postgres_url, lost, backlog):
    settings = {"PROCESSING_LEASE": 3, "PROCESSING_POLL_INTERVAL": "PT1H", "NOTIFY_ENABLED": False}
    with proxied(postgres_url) as (proxy, engine):
        app = application(jobs, engine, **settings)
        parts = app.extensions["async_jobs"]
        parts.repository.database._watchdog = Watchdog(1)
        jobs.start(app)
        wait_until(engine.pool.checkedin)
        freeze = proxy.freeze_answers if lost == "the answer" else proxy.freeze
        freeze()
        ids = [store.insert(new_job("quick")).job_id for _ in range(backlog)]
        parts.dispatcher.wake()
        wait_until(lambda: parts.dispatcher._lost_claims._marks)
        taken = {store.find(each).status for each in ids}
        assert taken == {JobStatus.PROCESSING if lost == "the answer" else JobStatus.PENDING}
        proxy.thaw()
        wait_until(lambda: all(store.find(each).completed_at for each in ids), 20)
    ended = [store.find(each) for each in ids]
    assert {(each.status, each.attempt) for each in ended} == {(JobStatus.COMPLETED, 1)}


def test_a_pass_without_lost_claims_asks_nothing(repository, engine):
    claims = LostClaims(repository, lambda: None)
    with counted(engine) as statements:
        claims.give_back_once()
    assert statements == []
