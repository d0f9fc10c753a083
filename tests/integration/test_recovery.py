"""The sweep over stranded jobs: what it takes, what it leaves alone, and that many may make it."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import text

from flask_async_jobs import AsyncJobs, JobRepository, JobStatus
from flask_async_jobs.records import TypeRules
from tests.integration.processes import application, running
from tests.integration.stores import LEASE, back_date, edit, new_job, row
from tests.waiting import wait_until

HOUR = timedelta(hours=1)
ALL = [TypeRules("a"), TypeRules("detached", detached=True), TypeRules("impatient"), TypeRules("foreign")]


@pytest.fixture
def jobs():
    jobs = AsyncJobs()
    jobs.register("a", lambda: None)
    jobs.register("detached", lambda: None, detached=True)
    jobs.register("impatient", lambda: None, processing_timeout=10)
    return jobs


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


@pytest.fixture
def app(jobs, engine):
    with application(jobs, engine).app_context():
        yield


def claim(repository, type="a"):
    repository.insert(new_job(type))
    (claim,) = repository.claim(ALL, 1, LEASE)
    return claim


@pytest.mark.usefixtures("app")
def test_a_job_whose_lease_lapsed_fails_with_a_stable_code(jobs, repository, engine):
    dead = claim(repository)
    back_date(engine, dead.job_id, HOUR, "lease_expires_at")
    assert jobs.recover() == 1
    job = jobs.get(dead.job_id)
    assert (job.status, job.error.title, job.error.code) == (
        JobStatus.FAILED,
        "Processing timeout",
        "processing-timeout",
    )
    assert not repository.complete(dead.job_id, dead.execution_token)


@pytest.mark.usefixtures("app")
def test_a_job_whose_lease_lives_is_left_alone_however_silent(jobs, repository, engine):
    alive = claim(repository)
    back_date(engine, alive.job_id, HOUR)
    before = row(engine, alive.job_id)
    assert jobs.recover() == 0
    assert row(engine, alive.job_id) == before


@pytest.mark.usefixtures("app")
def test_a_detached_job_is_a_zombie_when_it_was_silent_for_too_long(jobs, repository, engine):
    silent, reporting = claim(repository, "detached"), claim(repository, "detached")
    for each in (silent, reporting):
        back_date(engine, each.job_id, HOUR)
    assert repository.progress(reporting.job_id, reporting.execution_token, 1, LEASE)
    assert jobs.recover() == 1
    assert jobs.get(silent.job_id).status is JobStatus.FAILED
    assert jobs.get(reporting.job_id).status is JobStatus.PROCESSING


@pytest.mark.usefixtures("app")
def test_a_type_with_a_timeout_of_its_own_is_judged_by_it_even_while_its_lease_lives(jobs, repository, engine):
    silent, fresh = claim(repository, "impatient"), claim(repository, "impatient")
    back_date(engine, silent.job_id, timedelta(seconds=11))
    assert jobs.recover() == 1
    assert jobs.get(silent.job_id).error.code == "processing-timeout"
    assert jobs.get(fresh.job_id).status is JobStatus.PROCESSING


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize("started", ["NULL", "'2020-01-01 00:00:00'"])
def test_a_foreign_row_without_lease_and_attempts_is_recovered(jobs, engine, started):
    job_id = uuid4()
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO async_jobs "
                "(id, type, status, created_at, last_updated_at, started_at, execution_token) "
                f"VALUES (:id, 'a', 'PROCESSING', '2020-01-01 00:00:00', '2020-01-01 00:00:00', {started}, :id)"
            ),
            {"id": str(job_id)},
        )
    assert jobs.recover() == 1
    assert jobs.get(job_id).error.code == "processing-timeout"


@pytest.mark.usefixtures("app")
def test_jobs_of_types_that_this_instance_does_not_know_are_left_alone(jobs, repository, engine):
    foreign, waiting = claim(repository, "foreign"), repository.insert(new_job("foreign"))
    back_date(engine, foreign.job_id, HOUR, "created_at", "last_updated_at", "lease_expires_at")
    back_date(engine, waiting.job_id, HOUR)
    before = row(engine, foreign.job_id), row(engine, waiting.job_id)
    assert jobs.recover() == 0
    assert (row(engine, foreign.job_id), row(engine, waiting.job_id)) == before


@pytest.mark.usefixtures("app")
def test_jobs_that_have_ended_are_left_alone(jobs, repository, engine):
    ended = claim(repository)
    repository.complete(ended.job_id, ended.execution_token)
    back_date(engine, ended.job_id, HOUR, "created_at", "last_updated_at", "completed_at")
    assert jobs.recover() == 0


def test_a_pending_job_wakes_a_dispatcher_that_polls_seldom(jobs, repository, engine):
    with running(jobs, engine, PROCESSING_POLL_INTERVAL="PT1H"):
        wait_until(lambda: jobs.recover() == 0)
        orphan = repository.insert(new_job())
        back_date(engine, orphan.job_id, HOUR)
        assert jobs.recover() == 1
        wait_until(lambda: jobs.get(orphan.job_id).status is JobStatus.COMPLETED)
        assert jobs.get(orphan.job_id).attempt == 1


def test_many_sweeps_at_once_take_each_zombie_once(jobs, repository, engine):
    zombies = [claim(repository) for _ in range(20)]
    for zombie in zombies:
        back_date(engine, zombie.job_id, HOUR, "lease_expires_at")
    app = application(jobs, engine)
    start = threading.Barrier(4)

    def sweep():
        with app.app_context():
            start.wait()
            return jobs.recover()

    with ThreadPoolExecutor(4) as pool:
        counts = [pool.submit(sweep) for _ in range(4)]
        assert sum(count.result() for count in counts) == 20
    assert {row(engine, zombie.job_id).revision for zombie in zombies} == {3}


def test_a_sweep_is_bounded(jobs, repository, engine):
    for _ in range(5):
        back_date(engine, claim(repository).job_id, HOUR, "lease_expires_at")
    with application(jobs, engine, RECOVERY_BATCH_SIZE=2).app_context():
        assert [jobs.recover() for _ in range(4)] == [2, 2, 1, 0]


def test_a_row_that_cannot_be_written_harms_no_other(jobs, repository, engine, caplog):
    stuck, other = claim(repository), claim(repository)
    for each in (stuck, other):
        back_date(engine, each.job_id, HOUR, "lease_expires_at")
    refuse_updates_of(engine, stuck.job_id)
    with application(jobs, engine).app_context():
        assert jobs.recover() == 1
        assert jobs.get(other.job_id).status is JobStatus.FAILED
        assert jobs.get(stuck.job_id).status is JobStatus.PROCESSING
    assert f"job {stuck.job_id} could not be recovered" in caplog.text


def refuse_updates_of(engine, job_id):
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.execute(
                text(
                    "CREATE TRIGGER refuse BEFORE UPDATE ON async_jobs "
                    f"WHEN old.id = '{job_id}' BEGIN SELECT RAISE(ABORT, 'no'); END"
                )
            )
            return
        connection.execute(
            text(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
                "$$BEGIN IF old.id = '" + str(job_id) + "' THEN RAISE 'no'; END IF; RETURN new; END$$"
            )
        )
        connection.execute(
            text("CREATE TRIGGER refuse BEFORE UPDATE ON async_jobs FOR EACH ROW EXECUTE FUNCTION refuse()")
        )


def test_a_process_does_not_take_its_own_running_job_for_a_zombie(jobs, engine):
    entered, gate = threading.Event(), threading.Event()
    jobs.register("gate", lambda: entered.set() or (gate.wait(30) and None))
    with running(jobs, engine, PROCESSING_LEASE="PT1H"):
        job = jobs.submit("gate")
        assert entered.wait(10)
        back_date(engine, job.job_id, HOUR, "lease_expires_at")
        assert jobs.recover() == 0
        gate.set()
        wait_until(lambda: jobs.get(job.job_id).status is JobStatus.COMPLETED)


def test_an_attempt_beyond_the_first_is_exhausted(jobs, repository, engine):
    again = claim(repository)
    edit(engine, again.job_id, attempt=2)
    back_date(engine, again.job_id, HOUR, "lease_expires_at")
    with application(jobs, engine).app_context():
        jobs.recover()
        assert jobs.get(again.job_id).error.code == "attempts-exhausted"
