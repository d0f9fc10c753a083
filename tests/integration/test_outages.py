"""The database goes away, in each of the ways it does, and comes back: nobody has to restart anything."""

import threading
import time

import pytest
from sqlalchemy import NullPool, create_engine, make_url, text

from flask_async_jobs import AsyncJobs, JobRepository, JobStatus, StorageUnavailable
from flask_async_jobs.models import Base
from flask_async_jobs.process import GRACE
from flask_async_jobs.watchdog import Watchdog
from tests.integration.processes import application, running
from tests.integration.stores import LEASE, RULES, claimed, new_job
from tests.servers.proxy import proxied
from tests.waiting import wait_until

KILL_THE_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.fixture
def jobs():
    jobs = AsyncJobs()
    jobs.register("quick", lambda: None)
    return jobs


@pytest.fixture
def store(breakable_postgres):
    url = breakable_postgres.create_database("outage")
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def completed(jobs, submitted):
    return wait_until(lambda: _status(jobs, submitted) is JobStatus.COMPLETED, timeout=20)


def _status(jobs, submitted):
    try:
        return jobs.get(submitted.job_id).status
    except StorageUnavailable:
        return None


def test_a_restart_is_survived_by_threads_and_pool(jobs, store, breakable_postgres):
    with running(jobs, store, RECOVERY_SCAN_INTERVAL=0.2):
        completed(jobs, jobs.submit("quick"))
        breakable_postgres.kill()
        with pytest.raises(StorageUnavailable):
            jobs.submit("quick")
        breakable_postgres.start()
        submitted = wait_until(lambda: _submitted(jobs), timeout=20)
        completed(jobs, submitted)


def _submitted(jobs):
    try:
        return jobs.submit("quick")
    except StorageUnavailable:
        return None


def test_a_read_after_a_restart_succeeds_at_once_although_the_pool_is_stale(store, breakable_postgres):
    repository = JobRepository(store)
    job = repository.insert(new_job())
    breakable_postgres.kill()
    breakable_postgres.start()
    assert repository.find(job.job_id) == job


def test_an_outcome_that_cannot_be_written_is_written_later(jobs, store, breakable_postgres):
    stopped, gate = threading.Event(), threading.Event()

    def handler():
        stopped.set()
        gate.wait(30)

    jobs.register("gate", handler)
    with running(jobs, store):
        submitted = jobs.submit("gate")
        assert stopped.wait(10)
        breakable_postgres.kill()
        gate.set()
        breakable_postgres.start()
        completed(jobs, submitted)
        assert jobs.get(submitted.job_id).attempt == 1


def test_a_database_that_turned_read_only_answers_503_and_goes_on_later(jobs, postgres_url):
    engine = create_engine(postgres_url)
    name = make_url(postgres_url).database
    with running(jobs, engine) as app:
        client = app.test_client()
        set_read_only(engine, name, True)
        response = wait_until(lambda: (r := client.post("/jobs/quick")).status_code == 503 and r)
        assert response.headers["Retry-After"]
        set_read_only(engine, name, False)
        accepted = wait_until(lambda: (r := client.post("/jobs/quick")).status_code == 202 and r)
        wait_until(lambda: client.get(accepted.json["statusUrl"]).json["status"] == "COMPLETED")
    engine.dispose()


def set_read_only(engine, name, on):
    console = create_engine(engine.url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with console.connect() as connection:  # one of the pool may have been killed before
        connection.execute(text("SET default_transaction_read_only = off"))
        state = "on" if on else "off"
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_read_only = {state}"))
        connection.execute(text(KILL_THE_OTHERS))


def test_a_backend_that_is_killed_costs_one_answer_at_most(jobs, postgres_url):
    engine = create_engine(postgres_url)
    with running(jobs, engine):
        for _ in range(5):
            with engine.connect() as connection:
                connection.execute(text(KILL_THE_OTHERS))
            completed(jobs, wait_until(lambda: _submitted(jobs)))
    engine.dispose()


def test_a_frozen_connection_is_broken_after_the_limit_and_the_next_one_works(postgres_url):
    with proxied(postgres_url) as (proxy, engine):
        repository = JobRepository(engine)
        repository.database._watchdog = Watchdog(0.5)
        claim = claimed(repository)
        proxy.freeze()
        begun = time.monotonic()
        with pytest.raises(StorageUnavailable):
            repository.claim(RULES, 1, LEASE)
        assert time.monotonic() - begun < 10
        proxy.thaw()
        assert wait_until(lambda: _completes(repository, claim), timeout=20)


def _completes(repository, claim):
    try:
        return (
            repository.complete(claim.job_id, claim.execution_token) or repository.find(claim.job_id).completed_at
        )
    except StorageUnavailable:
        return None


def test_a_process_whose_statements_hang_ends_in_time(postgres_url):
    jobs, gate = AsyncJobs(), threading.Event()
    jobs.register("gate", lambda ctx: (ctx.log("begun"), gate.wait(30), ctx.log("ended")))
    with proxied(postgres_url) as (proxy, engine):
        app = application(jobs, engine, RECOVERY_SCAN_INTERVAL=0.1, SSE_POLL_INTERVAL=0.1)
        jobs.start(app)
        with app.app_context():
            submitted = jobs.submit("gate")
            wait_until(lambda: jobs.get(submitted.job_id).log_lines)
            following = jobs.watch(submitted.job_id)
            next(following)
        repository = jobs._instance_of(app).repository
        statements = repository.database._watchdog
        proxy.freeze()
        wait_until(lambda: len(statements._running) >= 3)  # of the claims, a pass of recovery and the watcher
        begun = time.monotonic()
        assert not jobs.shutdown(timeout=0.5, app=app)
        assert time.monotonic() - begun < 0.5 + GRACE + 1
        proxy.thaw()
        gate.set()
        following.close()
        wait_until(lambda: repository.find(submitted.job_id).status is JobStatus.COMPLETED)


def test_the_log_is_not_flooded_while_the_database_is_away(jobs, store, breakable_postgres, caplog):
    with running(jobs, store, PROCESSING_POLL_INTERVAL=0.02, RECOVERY_SCAN_INTERVAL=0.05):
        completed(jobs, jobs.submit("quick"))
        breakable_postgres.stop()
        away = threading.Event()
        away.wait(1.5)
        breakable_postgres.start()
        completed(jobs, wait_until(lambda: _submitted(jobs), timeout=20))
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert 1 <= len(errors) <= 3
