"""What an operation costs in statements: counted, not timed."""

import threading

import pytest
from sqlalchemy import event

from flask_async_jobs import AsyncJobs, JobStatus
from tests.integration.counting import counted
from tests.integration.processes import application, running
from tests.integration.stores import count, new_job
from tests.waiting import wait_until


@pytest.fixture
def jobs():
    jobs = AsyncJobs()
    jobs.register("quick", lambda: None)
    jobs.register("single", lambda: None, coalesce=True)
    return jobs


@pytest.fixture
def client(jobs, engine):
    return application(jobs, engine, AUTO_START=False).test_client()


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "new"}])
@pytest.mark.parametrize("type", ["quick", "single"])
def test_a_submission_is_one_insert(client, engine, headers, type):
    with counted(engine) as statements:
        assert client.post(f"/jobs/{type}", headers=headers).status_code == 202
    assert len(statements) == 1
    assert statements[0].startswith("INSERT")


def test_a_submission_is_one_transaction(client, engine):
    ends = []
    for name in ("commit", "rollback", "begin"):
        event.listen(engine, name, lambda connection, name=name: ends.append(name))
    client.post("/jobs/quick")
    assert ends == ["begin", "commit"]


def test_a_replay_is_an_insert_that_is_refused_and_one_read(client, engine):
    client.post("/jobs/quick", headers={"Idempotency-Key": "k"})
    with counted(engine) as statements:
        assert client.post("/jobs/quick", headers={"Idempotency-Key": "k"}).json["disposition"] == "replayed"
    assert (len(statements.writes), len(statements.reads)) == (1, 1)


def test_a_coalesced_submission_is_an_insert_that_is_refused_and_one_read(client, engine):
    client.post("/jobs/single")
    with counted(engine) as statements:
        assert client.post("/jobs/single").json["disposition"] == "coalesced"
    assert (len(statements.writes), len(statements.reads)) == (1, 1)


def test_a_status_is_one_read_by_primary_key_without_payload_and_result(client, engine):
    url = client.post("/jobs/quick").json["statusUrl"]
    with counted(engine) as statements:
        assert client.get(url).status_code == 200
    assert len(statements) == 1
    selected, where = statements[0].split("WHERE")
    assert "payload" not in selected
    assert "result" not in selected
    assert where.strip().startswith("async_jobs.id IN")


def test_a_job_costs_three_writes(jobs, engine):
    done = threading.Event()
    jobs.register("signal", done.set)
    with running(jobs, engine, PROCESSING_POLL_INTERVAL="PT1H"):
        idle = threading.Event()
        first = jobs.submit("quick")
        wait_until(lambda: jobs.get(first.job_id).status is JobStatus.COMPLETED)
        with counted(engine) as statements:
            submitted = jobs.submit("signal")
            wait_until(lambda: jobs.get(submitted.job_id).status is JobStatus.COMPLETED)
            idle.wait(0.2)  # nothing follows the outcome
    assert [s.split()[0] for s in statements.writes if s.split()[0] == "INSERT"] == ["INSERT"]
    assert len(statements.writes) == 3


def test_jobs_that_wait_are_claimed_together(jobs, engine):
    with running(jobs, engine, PROCESSING_ENABLED=False):
        ids = [jobs.submit("quick").job_id for _ in range(20)]
    with counted(engine) as statements, running(another(), engine):
        wait_until(lambda: all_completed(engine, ids))
    claims = [s for s in statements.writes if "attempt=(async_jobs.attempt +" in s]
    assert claims
    assert len(claims) <= 4


def another():
    jobs = AsyncJobs()
    jobs.register("quick", lambda: None)
    return jobs


def all_completed(engine, ids):
    from sqlalchemy import text

    with engine.connect() as connection:
        done = connection.execute(text("SELECT count(*) FROM async_jobs WHERE status = 'COMPLETED'")).scalar_one()
    return done == len(ids)


def test_an_idle_process_claims_once_an_interval_and_sweeps_once_a_scan(jobs, engine):
    intervals = threading.Event()
    with (
        running(jobs, engine, PROCESSING_POLL_INTERVAL=0.2, RECOVERY_SCAN_INTERVAL=0.5),
        counted(engine) as statements,
    ):
        intervals.wait(2.05)
    claims = [s for s in statements if s.startswith(("UPDATE", "WITH"))]
    sweeps = [s for s in statements if s.startswith("SELECT")]
    assert 5 <= len(claims) <= 11
    assert 2 <= len(sweeps) <= 5
    assert len(statements) == len(claims) + len(sweeps)


def test_a_sweep_that_finds_nothing_is_one_read(jobs, engine):
    with application(jobs, engine).app_context(), counted(engine) as statements:
        assert jobs.recover() == 0
    assert len(statements) == len(statements.reads) == 1


def test_a_renewal_is_one_statement_however_many_jobs_run(jobs, engine):
    gate = threading.Event()
    jobs.register("gate", lambda: gate.wait(30))
    with running(jobs, engine) as app:
        for _ in range(10):
            jobs.submit("gate")
        dispatcher = app.extensions["async_jobs"].dispatcher
        wait_until(lambda: len(dispatcher.running) == 10)
        with counted(engine) as statements:
            assert dispatcher.keeper.renew_once() == 10
        renewals = [s for s in statements if "SET lease_expires_at" in s]
        gate.set()
    assert len(renewals) == 1


def test_a_refused_insert_leaves_no_row(client, engine):
    for _ in range(3):
        client.post("/jobs/single")
    assert count(engine) == 1
    assert new_job().job_id != new_job().job_id
