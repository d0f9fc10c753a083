"""What an application calls itself: `accepted`, `last_completed_at`, `reporter`, `get`, `cancel`, `purge`."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import uuid4

import pytest
from marshmallow import Schema, fields
from sqlalchemy import Engine

from flask_async_jobs import AsyncJobs, CancelResult, InvalidPayload, JobStatus, UnknownType
from tests.integration.apps import START, Clock, Site, serving


class Order(Schema):
    amount = fields.Raw(required=True)


class Shop(AsyncJobs):
    """One handler that takes a payload, one that is retried, one that is nothing special."""

    def __init__(self) -> None:
        super().__init__()
        self.register("order", lambda ctx, payload: str(payload["amount"]), payload_schema=Order)
        self.register("plain", lambda: None)
        self.register("again", lambda: None, max_attempts=2)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def site(engine: Engine, clock: Clock) -> Iterator[Site]:
    with serving(Shop(), engine, run=True, init={"clock": clock}) as site, site.app.app_context():
        yield site


@pytest.fixture
def idle(engine: Engine) -> Iterator[Site]:
    """Runs no jobs."""
    with serving(Shop(), engine) as site, site.app.app_context():
        yield site


def test_a_view_of_the_applications_own_answers_like_the_librarys(idle: Site) -> None:
    @idle.app.post("/orders")
    def order():
        return idle.jobs.accepted(idle.jobs.submit("order", {"amount": 1}))

    response = idle.ask("POST", "/orders")
    assert response.status_code == 202
    assert response.headers["Location"] == response.json["statusUrl"]
    assert response.headers["Retry-After"] == "5"
    assert response.json["disposition"] == "created"
    assert idle.get(response.headers["Location"]).json["jobType"] == "order"


def test_without_routes_there_is_no_response_to_give(engine: Engine) -> None:
    jobs = Shop()
    with serving(jobs, engine, WEB_ENABLED=False) as site, site.app.app_context():
        submitted = jobs.submit("plain")
        assert submitted.status_url is submitted.events_url is submitted.cancel_url is None
        with pytest.raises(RuntimeError, match="WEB_ENABLED is off"):
            jobs.accepted(submitted)


def test_when_work_last_completed_is_told_by_type_payload_and_owner(site: Site, clock: Clock) -> None:
    jobs = site.jobs
    assert jobs.last_completed_at("order", {"amount": 1}) is None
    job = jobs.wait(jobs.submit("order", {"amount": Decimal("1.00")}).job_id, 5)
    assert job.status is JobStatus.COMPLETED
    assert jobs.last_completed_at("order", {"amount": 1}) == START
    assert jobs.last_completed_at("order", {"amount": 2}) is None
    assert jobs.last_completed_at("order", {"amount": 1}, owner="ada") is None
    with pytest.raises(UnknownType):
        jobs.last_completed_at("nothing")


@pytest.mark.parametrize("payload", [{"amount": float("nan")}, {"amount": b"1"}, {"amount": "\0"}, {}, [1]])
def test_a_payload_that_cannot_be_is_refused_before_anything_is_stored(idle: Site, engine: Engine, payload) -> None:
    with pytest.raises(InvalidPayload):
        idle.jobs.submit("order", payload)
    assert idle.count(engine) == 0


def test_a_reporter_without_a_token_is_for_types_with_one_attempt(idle: Site) -> None:
    jobs = idle.jobs
    assert jobs.reporter(jobs.submit("plain").job_id).progress(1) is False  # it waits
    with pytest.raises(ValueError, match="may have more than one attempt"):
        jobs.reporter(jobs.submit("again").job_id)
    assert jobs.reporter(uuid4()).complete() is False
    with pytest.raises(ValueError, match="badly formed"):
        jobs.reporter("1")


def test_an_id_that_no_job_can_have_is_not_found(idle: Site) -> None:
    assert idle.jobs.get("1") is None
    assert idle.jobs.cancel("1") is CancelResult.NOT_FOUND
    assert idle.jobs.cancel(uuid4()) is CancelResult.NOT_FOUND


def test_a_naive_instant_is_refused(idle: Site) -> None:
    with pytest.raises(ValueError, match="give an aware datetime"):
        idle.jobs.submit("plain", run_at=datetime(2026, 1, 1))


def test_purge_goes_by_an_age_that_is_never_less_than_the_retention(site: Site, clock: Clock) -> None:
    jobs = site.jobs
    jobs.wait(jobs.submit("plain").job_id, 5)
    assert (jobs.purge(), jobs.purge(0), jobs.recover()) == (0, 0, 0)
    clock.tick(3_601)
    assert jobs.purge("P1D") == 0
    assert jobs.purge(timedelta(hours=1)) == 1
    with pytest.raises(ValueError, match="older_than is 'soon'"):
        jobs.purge("soon")
