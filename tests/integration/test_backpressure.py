"""What a submission meets when every slot is taken, or as many jobs are active as may be."""

import threading
import time
from contextlib import contextmanager
from datetime import timedelta

import pytest

from flask_async_jobs import AsyncJobs, Disposition, JobStatus, Saturated, TooManyActive
from tests.integration.counting import counted
from tests.integration.processes import application, running
from tests.integration.stores import count
from tests.waiting import wait_until

GATE = 20


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def jobs(gate):
    jobs = AsyncJobs()
    jobs.register("gate", lambda: gate.wait(GATE) and None)
    jobs.register("single", lambda: gate.wait(GATE) and None, coalesce=True)
    jobs.register("warm", lambda: None, freshness=timedelta(minutes=5))
    jobs.register("capped", lambda: None, max_active=2)
    return jobs


@contextmanager
def full(jobs, engine, gate, **settings):
    """Run an application with one slot, which a job has taken."""
    with running(jobs, engine, PROCESSING_CONCURRENCY_LIMIT=1, **settings) as app:
        taken = jobs.submit("single", idempotency_key="taken")
        wait_until(lambda: app.extensions["async_jobs"].dispatcher.is_full)
        try:
            yield app, taken
        finally:
            gate.set()


def test_reject_stores_nothing_and_says_when_to_come_again(jobs, engine, gate):
    with full(jobs, engine, gate, BACKPRESSURE="reject") as (app, _):
        response = app.test_client().post("/jobs/gate")
        assert response.status_code == 429
        assert response.json["type"].endswith(":saturated")
        assert int(response.headers["Retry-After"]) >= 1
        assert count(engine) == 1
        with pytest.raises(Saturated):
            jobs.submit("gate")


def test_reject_does_not_concern_answers_from_other_jobs(jobs, engine, gate):
    with running(jobs, engine):
        warm = jobs.submit("warm")
        wait_until(lambda: jobs.get(warm.job_id).status is JobStatus.COMPLETED)
    with full(jobs, engine, gate, BACKPRESSURE="reject", FRESHNESS_ENABLED=True) as (_, taken):
        assert jobs.submit("single", idempotency_key="taken").disposition is Disposition.REPLAYED
        assert jobs.submit("single").job_id == taken.job_id
        assert jobs.submit("warm").job_id == warm.job_id
        with pytest.raises(Saturated):
            jobs.submit("warm", force=True)


def test_queue_never_holds_an_answer(jobs, engine, gate):
    with full(jobs, engine, gate, BACKPRESSURE="queue") as (app, _):
        begun = time.monotonic()
        assert app.test_client().post("/jobs/gate").status_code == 202
        assert time.monotonic() - begun < 2


def test_wait_holds_the_answer_until_a_slot_takes_the_job(jobs, engine, gate):
    with full(jobs, engine, gate, BACKPRESSURE_TIMEOUT=GATE) as (app, _):
        answers = []
        client = threading.Thread(target=lambda: answers.append(app.test_client().post("/jobs/gate")))
        client.start()
        wait_until(lambda: count(engine) == 2)  # the row is there before the answer
        assert answers == []
        gate.set()
        client.join(10)
        assert answers[0].status_code == 202


def test_wait_ends_after_its_time(jobs, engine, gate):
    with full(jobs, engine, gate, BACKPRESSURE_TIMEOUT=0.3) as (app, _):
        begun = time.monotonic()
        response = app.test_client().post("/jobs/gate")
        assert response.status_code == 202
        assert 0.3 <= time.monotonic() - begun < 3
        assert jobs.get(response.json["jobId"]).status is JobStatus.PENDING


def test_only_so_many_answers_are_held(jobs, engine, gate):
    with full(jobs, engine, gate, BACKPRESSURE_TIMEOUT=GATE, BACKPRESSURE_MAX_WAITERS=1) as (app, _):
        held = threading.Thread(target=lambda: app.test_client().post("/jobs/gate"))
        held.start()
        wait_until(lambda: count(engine) == 2)
        wait_until(lambda: not app.extensions["async_jobs"]._waiters.acquire(blocking=False))
        begun = time.monotonic()
        assert app.test_client().post("/jobs/gate").status_code == 202
        assert time.monotonic() - begun < 5
        gate.set()
        held.join(10)


def test_an_answer_from_another_job_and_a_call_from_python_are_not_held(jobs, engine, gate):
    with full(jobs, engine, gate, BACKPRESSURE_TIMEOUT=GATE) as (app, _):
        begun = time.monotonic()
        assert app.test_client().post("/jobs/single").json["disposition"] == "coalesced"
        jobs.submit("gate")
        assert time.monotonic() - begun < 5


def test_a_process_that_only_accepts_neither_holds_nor_rejects(jobs, engine):
    for mode in ("wait", "reject"):
        with running(jobs, engine, PROCESSING_ENABLED=False, BACKPRESSURE=mode) as app:
            assert app.test_client().post("/jobs/gate").status_code == 202


@pytest.mark.parametrize(
    ("type", "settings", "owners"),
    [
        ("capped", {}, ("a", "b", "c")),
        ("gate", {"MAX_ACTIVE": 2}, ("a", "b", "c")),
        ("gate", {"MAX_ACTIVE_PER_OWNER": 2}, ("a",) * 3),
    ],
)
def test_a_cap_refuses_what_is_beyond_it_until_a_job_has_ended(jobs, engine, type, settings, owners):
    app = application(jobs, engine, **settings)
    with app.app_context():
        first, _ = (jobs.submit(type, owner=owner) for owner in owners[:2])
        with pytest.raises(TooManyActive):
            jobs.submit(type, owner=owners[2])
        assert count(engine) == 2
        jobs.cancel(first.job_id)
        assert jobs.submit(type, owner=owners[2]).disposition is Disposition.CREATED


def test_a_cap_is_one_types_and_one_owners_own(jobs, engine):
    with application(jobs, engine, MAX_ACTIVE_PER_OWNER=1).app_context():
        assert jobs.submit("gate", owner="a")
        assert jobs.submit("gate", owner="b")
        with pytest.raises(TooManyActive):
            jobs.submit("capped", owner="a")


def test_a_cap_is_a_429_and_does_not_concern_replays(jobs, engine):
    client = application(jobs, engine, AUTO_START=False).test_client()
    answers = [client.post("/jobs/capped", headers={"Idempotency-Key": str(n)}) for n in range(3)]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert answers[2].json["type"].endswith(":too-many-active")
    assert answers[2].headers["Retry-After"]
    assert client.post("/jobs/capped", headers={"Idempotency-Key": "0"}).json["disposition"] == "replayed"


def test_only_a_capped_submission_takes_a_lock(jobs, engine):
    with application(jobs, engine).app_context():
        with counted(engine) as statements:
            jobs.submit("gate")
        assert len(statements) == 1
        with counted(engine) as statements:
            jobs.submit("capped")
        locks = [s for s in statements if "pg_advisory_xact_lock" in s]
        assert len(locks) == (engine.dialect.name == "postgresql")
