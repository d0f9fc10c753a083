"""Batches that are not accepted from Python: what makes no sense, and what there is no room for."""

import threading

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from flask_async_jobs import (
    Disposition,
    InvalidIdempotencyKey,
    InvalidPayload,
    PayloadTooLarge,
    Saturated,
    TooManyActive,
    UnknownType,
)
from tests.integration.batching import batch_jobs, quick_items, stored
from tests.integration.counting import counted
from tests.integration.processes import application, running
from tests.integration.rivals import at_once
from tests.waiting import wait_until

NONE = "The type takes no payload: leave it out, or send {}."


@pytest.fixture
def jobs():
    return batch_jobs()


@pytest.fixture
def here(jobs, engine):
    with application(jobs, engine, AUTO_START=False).app_context():
        yield jobs


# Refused


@pytest.mark.parametrize(
    ("items", "errors"),
    [
        ([], ["Send 1 to 3 items."]),
        (quick_items(4), ["Send 1 to 3 items."]),
        ([{"payload": {}}], {0: {"itemId": ["Missing data for required field."]}}),
        ([{"itemId": " \t"}], {0: {"itemId": ["Must not be blank."]}}),
        ([{"itemId": "x" * 129}], {0: {"itemId": ["Longer than 128 characters."]}}),
        ([{"itemId": 5}], {0: {"itemId": ["Not a valid string."]}}),
        ([{"itemId": "a"}, {"itemId": "a"}], {1: {"itemId": ["Not unique: item 0 has it too."]}}),
        ([{"itemId": "a", "payLoad": {}}], {0: {"payLoad": ["Unknown field."]}}),
        (["a"], {0: {"_schema": ["Invalid input type."]}}),
        ([{"itemId": "a", "payload": {"x": 1}}], {0: {"payload": [NONE]}}),
        ([{"itemId": "a", "payload": []}], {0: {"payload": [NONE]}}),
    ],
)  # fmt: skip
def test_a_batch_that_makes_no_sense_is_refused_before_the_database_is_asked(jobs, engine, items, errors):
    with application(jobs, engine, AUTO_START=False, BATCH_MAX_ITEMS=3).app_context():
        with counted(engine) as statements, pytest.raises(InvalidPayload) as caught:
            jobs.submit_batch("quick", items)
        assert caught.value.errors == {"items": errors}
        assert statements == []


def test_one_bad_payload_in_the_middle_refuses_the_batch(here, engine):
    items = [{"itemId": str(n), "payload": {"price": 1}} for n in range(5)]
    items[2]["payload"] = {"price": 1, "rooms": "two"}
    items[4].pop("payload")
    with pytest.raises(InvalidPayload) as caught:
        here.submit_batch("review", items)
    assert caught.value.errors == {
        "items": {
            2: {"payload": {"rooms": ["Not a valid integer."]}},
            4: {"payload": {"price": ["Missing data for required field."]}},
        }
    }
    assert stored(engine) == (0, 0)


@pytest.mark.parametrize(
    ("items", "error"),
    [
        ([{"itemId": "a", "payload": {"price": "\0"}}], InvalidPayload),
        ([{"itemId": "\ud800"}], InvalidPayload),
        ([{"itemId": "a", "payload": {"price": float("nan")}}], InvalidPayload),
        ([{"itemId": "a", "payload": {"price": "x" * 100}}], PayloadTooLarge),
    ],
)
def test_what_no_database_stores_is_refused_with_its_place(jobs, engine, items, error):
    with application(jobs, engine, AUTO_START=False, PAYLOAD_MAX_BYTES=50).app_context():
        with pytest.raises(error, match=r"item 0|payload cannot be stored"):
            jobs.submit_batch("review", items)
        assert stored(engine) == (0, 0)


def test_what_submit_refuses_submit_batch_refuses_too(here, engine):
    with pytest.raises(UnknownType):
        here.submit_batch("nothing", quick_items(1))
    with pytest.raises(InvalidIdempotencyKey):
        here.submit_batch("quick", quick_items(1), idempotency_key="ü")
    with pytest.raises(InvalidIdempotencyKey):
        here.submit_batch("quick", quick_items(1), idempotency_key=17)
    with pytest.raises(InvalidIdempotencyKey):
        here.submit_batch("keyed", quick_items(1))
    with pytest.raises(ValueError, match="owner"):
        here.submit_batch("quick", quick_items(1), owner="x" * 300)
    assert stored(engine) == (0, 0)


def test_a_session_on_another_engine_is_refused(here, engine):
    with Session(create_engine("sqlite://")) as session, pytest.raises(ValueError, match="another engine"):
        here.submit_batch("quick", quick_items(1), session=session)
    assert stored(engine) == (0, 0)


# Caps and backpressure


def test_a_cap_holds_for_the_batch_as_a_whole(here, engine):
    here.submit("three")
    with pytest.raises(TooManyActive):
        here.submit_batch("three", quick_items(3), idempotency_key="k")
    assert stored(engine) == (0, 1)
    here.submit_batch("three", quick_items(2), idempotency_key="k")
    assert here.submit_batch("three", quick_items(2), idempotency_key="k").disposition is Disposition.REPLAYED
    with pytest.raises(TooManyActive):
        here.submit("three")


def test_a_cap_is_exact_however_many_submit_at_once(jobs, engine):
    app = application(jobs, engine, AUTO_START=False, MAX_ACTIVE=10)

    def submit(number):
        with app.app_context():
            try:
                return jobs.submit_batch("quick", quick_items(4)).total
            except TooManyActive:
                return 0

    assert sum(at_once(8, submit)) == 8
    assert stored(engine) == (2, 8)


def test_a_full_process_rejects_a_batch_and_answers_its_replay(jobs, engine):
    gate = threading.Event()
    jobs.register("gate", lambda: gate.wait(10))
    limits = {"BACKPRESSURE": "reject", "PROCESSING_CONCURRENCY_LIMIT": 1}
    with running(jobs, engine, **limits) as app:
        first = jobs.submit_batch("gate", quick_items(2), idempotency_key="k")
        wait_until(lambda: app.extensions["async_jobs"].dispatcher.is_full)
        with pytest.raises(Saturated):
            jobs.submit_batch("quick", quick_items(1), idempotency_key="other")
        assert jobs.submit_batch("gate", quick_items(2), idempotency_key="k").batch_id == first.batch_id
        assert stored(engine) == (1, 2)
        gate.set()
