"""A process that is killed at any statement of a job's life: recovery brings the job to its end, by the rules."""

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import func, select

from flask_async_jobs import Disposition, JobStatus
from tests.integration import audit, kill_child
from tests.integration.kill_child import MAX_ATTEMPTS, build, effects
from tests.integration.shared import module_database

ROOT = Path(__file__).parents[2]
TYPES = ["plain", "once", "own", "atomic", "retried", "later", "failing"]


class AheadClock:
    """The time of this host, and some hours: to it every lease of a dead process has lapsed."""

    ahead = timedelta(hours=1)

    def __call__(self):
        return datetime.now(UTC) + self.ahead


def prepare(engine):
    audit.install(engine)
    kill_child.metadata.create_all(engine)


shared, engine = module_database("kills", "effects", "job_audit", prepare=prepare)


@pytest.fixture(scope="module")
def mother():
    """The process that forks those that are killed; it has imported everything and connected to nothing."""
    command = [sys.executable, "-W", "error", "-m", "tests.integration.kill_child"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.stdin.close()
        process.wait(10)


@pytest.fixture
def survivor(engine):
    """The application in a process that lives."""
    clock = AheadClock()
    application = build(engine.url.render_as_string(hide_password=False), clock)
    application.clock = clock
    with application.app.app_context():
        yield application
    application.engine.dispose()


def life(mother, engine, **order):
    """Let a process live until its death, and return its exit code."""
    order["url"] = engine.url.render_as_string(hide_password=False)
    mother.stdin.write(json.dumps(order) + "\n")
    mother.stdin.flush()
    return int(mother.stdout.readline())


def recovered(survivor, type, key, number):
    """Submit again with the same key, as a client does that got no answer; recover, and return the job's end."""
    submitted = survivor.jobs.submit(type, idempotency_key=key)
    assert submitted.disposition is Disposition.REPLAYED or number == 1, "the row was there before the answer"
    for _ in range(MAX_ATTEMPTS + 1):
        survivor.clock.ahead += timedelta(hours=1)
        survivor.jobs.recover()
        survivor.work_off()
        if (job := survivor.jobs.get(submitted.job_id)).status.is_terminal:
            return job
    raise AssertionError(f"{job} does not end")


def executions(engine, job):
    with engine.connect() as connection:
        query = select(func.count()).select_from(effects).where(effects.c.job_id == str(job.job_id))
        return connection.execute(query).scalar_one()


def assert_lawful(type, job, done, changes):
    for change in changes:
        audit.assert_lawful(change, uncounted=type == "later")
    assert job.attempt <= MAX_ATTEMPTS
    match type:
        case "own" | "atomic":
            assert (job.status, done) == (JobStatus.COMPLETED, 1)
        case "once" if job.status is JobStatus.FAILED:
            assert (job.error.code, job.attempt) == ("processing-timeout", 1)
            assert done <= 1
        case "once":
            assert (job.status, done, job.attempt) == (JobStatus.COMPLETED, 1, 1)
        case "failing":
            assert (job.status, job.error.code) == (JobStatus.FAILED, "broken")
            assert 1 <= done <= MAX_ATTEMPTS
        case "later":
            assert job.status is JobStatus.COMPLETED
            assert 1 <= done <= MAX_ATTEMPTS + 1, "the attempt that RetryLater ended does not count"
        case _:
            assert job.status is JobStatus.COMPLETED
            assert 1 <= done <= MAX_ATTEMPTS


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("type", TYPES)
def test_a_job_ends_by_the_rules_at_whichever_statement_its_process_is_killed(
    mother, engine, survivor, type, moment
):
    for number in count(1):
        key = f"{type}-{moment}-{number}"
        code = life(mother, engine, type=type, key=key, moment=moment, number=number)
        assert code in (-signal.SIGKILL, 0)
        job = recovered(survivor, type, key, number)
        done = executions(engine, job)
        assert_lawful(type, job, done, audit.changes(engine, job_id=job.job_id))
        if code == 0:
            break
    # Submission, claim, progress, effect and completion at least, and the claim that finds nothing more.
    assert number > 6
