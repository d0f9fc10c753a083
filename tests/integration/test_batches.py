"""Accepting batches from Python: whole or not at all, by a constant number of statements, once for each key."""

from decimal import Decimal

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session

from flask_async_jobs import (
    Disposition,
    IdempotencyKeyConflict,
    JobStatus,
    StorageUnavailable,
    TooManyActive,
)
from flask_async_jobs.models import Base
from tests.integration.batching import batch_jobs, column, quick_items, stored
from tests.integration.counting import counted
from tests.integration.processes import application, running
from tests.integration.rivals import at_once
from tests.waiting import wait_until

REVIEWS = [
    {"itemId": "a", "payload": {"price": Decimal("45.00"), "rooms": 2}},
    {"itemId": "b", "payload": {"price": Decimal("1E+400")}},
    {"itemId": "c", "payload": {"price": 2**53 + 1}},
]


@pytest.fixture
def jobs():
    return batch_jobs()


@pytest.fixture
def here(jobs, engine):
    with application(jobs, engine, AUTO_START=False).app_context():
        yield jobs


def test_a_batch_is_stored_with_a_job_for_each_item_in_order(here, engine):
    batch = here.submit_batch("review", REVIEWS, idempotency_key="k", owner="me")
    assert (batch.status, batch.disposition, batch.total) == (JobStatus.PENDING, Disposition.CREATED, 3)
    assert column(engine, "item_id") == ["a", "b", "c"]
    assert column(engine, "item_position") == [1, 2, 3]
    assert column(engine, "payload") == [
        '{"price":45.00,"rooms":2}',
        '{"price":1E+400}',
        '{"price":9007199254740993}',
    ]
    assert set(column(engine, "owner")) == {"me"}
    assert column(engine, "coalescing_key") == column(engine, "idempotency_key") == [None] * 3
    assert len(set(column(engine, "work_key"))) == len(set(column(engine, "fingerprint"))) == 3
    assert len(set(column(engine, "created_at"))) == 1
    (view,) = {here.get(job_id).batch_id for job_id in column(engine, "id")}
    assert view == batch.batch_id


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("caps", [{}, {"MAX_ACTIVE": 1_000, "MAX_ACTIVE_PER_OWNER": 1_000}])
def test_a_batch_costs_the_same_statements_whatever_its_size(jobs, engine, size, caps):
    ends = []
    with application(jobs, engine, AUTO_START=False, **caps).app_context():
        jobs.submit_batch("quick", quick_items(1))
        for name in ("commit", "rollback"):
            event.listen(engine, name, lambda connection, name=name: ends.append(name))
        with counted(engine) as statements:
            jobs.submit_batch("quick", quick_items(size), idempotency_key="k")
    locks = len(caps) if engine.dialect.name == "postgresql" else 0
    assert [s.split()[0] for s in statements] == ["SELECT"] * locks + ["INSERT", "INSERT"]
    assert ends == ["commit"]


def test_a_replay_is_an_insert_that_is_refused_and_one_read(here, engine):
    first = here.submit_batch("quick", quick_items(3), idempotency_key="k")
    with counted(engine) as statements:
        again = here.submit_batch("quick", quick_items(3), idempotency_key='"k"')
    assert (again.batch_id, again.disposition) == (first.batch_id, Disposition.REPLAYED)
    assert (len(statements.writes), len(statements.reads)) == (1, 1)
    assert stored(engine) == (1, 3)


def test_equal_payloads_replay_and_keep_the_first_snapshot(here, engine):
    first = here.submit_batch("review", REVIEWS, idempotency_key="k")
    equal = [
        {"payload": {"rooms": 2, "price": 45}, "itemId": "a"},
        {"itemId": "b", "payload": {"price": 10**400}},
        {"itemId": "c", "payload": {"price": Decimal("9007199254740993.0")}},
    ]
    assert here.submit_batch("review", equal, idempotency_key="k").batch_id == first.batch_id
    assert column(engine, "payload")[0] == '{"price":45.00,"rooms":2}'


@pytest.mark.parametrize(
    ("type", "items"),
    [
        ("review", REVIEWS[::-1]),
        ("review", REVIEWS[:2]),
        ("review", [{**REVIEWS[0], "itemId": "A"}, *REVIEWS[1:]]),
        ("review", [{"itemId": "a", "payload": {"price": Decimal("45.01"), "rooms": 2}}, *REVIEWS[1:]]),
        ("quick", [{"itemId": item["itemId"]} for item in REVIEWS]),
    ],
)
def test_a_key_that_was_used_for_other_items_is_a_conflict(here, engine, type, items):
    here.submit_batch("review", REVIEWS, idempotency_key="k")
    with pytest.raises(IdempotencyKeyConflict):
        here.submit_batch(type, items, idempotency_key="k")
    assert stored(engine) == (1, 3)


def test_keys_are_apart_from_those_of_jobs_and_of_other_owners(here, engine):
    here.submit("quick", idempotency_key="k")
    ids = {
        here.submit_batch("quick", quick_items(1), idempotency_key="k", owner=o).batch_id for o in (None, "a", "b")
    }
    assert len(ids) == 3
    assert stored(engine) == (3, 4)


def test_an_item_without_a_payload_is_one_with_an_empty_payload(here, engine):
    spelled = [{"itemId": "a"}, {"itemId": "a", "payload": None}, {"itemId": "a", "payload": {}}]
    assert len({here.submit_batch("quick", [item], idempotency_key="k").batch_id for item in spelled}) == 1
    assert column(engine, "payload") == [None]


def test_an_item_may_be_named_by_any_text_of_128_characters(here, engine):
    names = ["x" * 128, "\U0001f600" * 128, "a", "A", " a", "{},[]\"'\\\n", "NULL"]
    here.submit_batch("quick", [{"itemId": name} for name in names])
    assert column(engine, "item_id") == names


def test_items_neither_coalesce_nor_are_answered_by_freshness(jobs, engine):
    settings = {"FRESHNESS_ENABLED": True, "FRESHNESS_DEFAULT_WINDOW": "PT10M"}
    with application(jobs, engine, AUTO_START=False, **settings).app_context():
        for _ in range(2):
            jobs.submit_batch("single", quick_items(2))
        assert stored(engine) == (2, 4)
        assert jobs.submit("single").disposition is Disposition.CREATED


def test_items_run_as_jobs_do_and_count_as_this_work(jobs, engine):
    jobs.register("boom", lambda: 1 / 0)
    with running(jobs, engine) as app:
        away = jobs.submit_batch("away", quick_items(1))
        jobs.submit_batch("review", REVIEWS)
        jobs.submit_batch("boom", quick_items(2))
        wait_until(lambda: sorted(column(engine, "status")) == ["COMPLETED"] * 3 + ["FAILED"] * 2 + ["PROCESSING"])
        assert jobs.last_completed_at("review", REVIEWS[0]["payload"])
        assert jobs.last_completed_at("review", {"price": 0}) is None
        assert app.extensions["async_jobs"].find_batch(away.batch_id).processing == 1
        for job_id, status in zip(column(engine, "id"), column(engine, "status"), strict=True):
            if status == "COMPLETED":
                assert jobs.get(job_id).result in [item["payload"] for item in REVIEWS]


def test_the_dispatcher_of_this_process_is_woken(jobs, engine):
    with running(jobs, engine, PROCESSING_POLL_INTERVAL="PT1H"):
        jobs.submit_batch("quick", quick_items(3))
        wait_until(lambda: column(engine, "status") == ["COMPLETED"] * 3)


# All or nothing


def test_twelve_equal_submissions_at_once_are_one_batch(jobs, engine):
    app = application(jobs, engine, AUTO_START=False)

    def submit(number):
        with app.app_context():
            return jobs.submit_batch("review", REVIEWS, idempotency_key="k")

    answers = at_once(12, submit)
    assert len({answer.batch_id for answer in answers}) == 1
    assert [answer.disposition for answer in answers].count(Disposition.CREATED) == 1
    assert stored(engine) == (1, 3)


def test_a_failure_after_the_last_insert_leaves_nothing(here, engine):
    def fail(connection, cursor, statement, parameters, context, executemany):
        if statement.startswith("INSERT INTO async_jobs"):
            raise RuntimeError("after the last insert")

    event.listen(engine, "after_cursor_execute", fail)
    with pytest.raises(RuntimeError, match="after the last insert"):
        here.submit_batch("quick", quick_items(100), idempotency_key="k")
    event.remove(engine, "after_cursor_execute", fail)
    assert stored(engine) == (0, 0)
    assert here.submit_batch("quick", quick_items(100), idempotency_key="k").disposition is Disposition.CREATED


def test_a_database_that_dies_in_the_middle_leaves_nothing(jobs, breakable_postgres):
    server = breakable_postgres
    engine = create_engine(server.create_database("dies"))
    Base.metadata.create_all(engine)
    with application(jobs, engine, AUTO_START=False).app_context():

        def kill(connection, cursor, statement, parameters, context, executemany):
            if statement.startswith("INSERT INTO async_job_batches"):
                server.kill()

        event.listen(engine, "after_cursor_execute", kill)
        with pytest.raises(StorageUnavailable):
            jobs.submit_batch("quick", quick_items(100), idempotency_key="k")
        event.remove(engine, "after_cursor_execute", kill)
        server.start()
        wait_until(lambda: stored(engine) == (0, 0))
    engine.dispose()


# In the caller's transaction


@pytest.fixture
def session(engine):
    with Session(engine) as session:
        yield session


def test_a_batch_shares_the_fate_of_the_callers_transaction(here, engine, session):
    here.submit_batch("quick", quick_items(3), idempotency_key="k", session=session)
    session.rollback()
    assert stored(engine) == (0, 0)
    batch = here.submit_batch("quick", quick_items(3), idempotency_key="k", session=session)
    again = here.submit_batch("quick", quick_items(3), idempotency_key="k", session=session)
    assert (again.batch_id, again.disposition) == (batch.batch_id, Disposition.REPLAYED)
    with pytest.raises(IdempotencyKeyConflict):
        here.submit_batch("quick", quick_items(2), idempotency_key="k", session=session)
    assert session.execute(text("SELECT count(*) FROM async_jobs")).scalar_one() == 3
    session.commit()
    assert stored(engine) == (1, 3)


def test_no_item_runs_before_the_callers_commit_and_the_dispatcher_is_woken_by_it(jobs, engine, session):
    with running(jobs, engine, PROCESSING_POLL_INTERVAL="PT1H"):
        if engine.dialect.name == "sqlite":
            jobs.submit_batch("quick", quick_items(2), session=session)
            session.commit()
        else:
            jobs.submit_batch("quick", quick_items(2), session=session)
            jobs.submit("quick")  # makes the dispatcher look, in vain
            wait_until(lambda: column(engine, "status") == ["COMPLETED"])
            session.commit()
        wait_until(lambda: set(column(engine, "status")) == {"COMPLETED"} and stored(engine)[1] >= 2)


def test_a_cap_holds_in_the_callers_transaction(here, engine, session):
    with pytest.raises(TooManyActive):
        here.submit_batch("three", quick_items(4), session=session)
    here.submit_batch("three", quick_items(3), session=session)
    session.commit()
    assert stored(engine) == (1, 3)


def test_without_routes_there_are_no_urls(jobs, engine):
    with application(jobs, engine, AUTO_START=False, WEB_ENABLED=False).app_context():
        batch = jobs.submit_batch("quick", quick_items(1))
    assert batch.status_url is batch.items_url is batch.events_url is None
