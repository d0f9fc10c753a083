"""A process that dies with a running job: the job ends, by whoever is left."""

import os
import signal
import time
from contextlib import suppress

import httpx
import pytest

from tests.acceptance.apps.harness import Consumer
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

LEASE, SCAN, SLACK = 1, 0.2, 2


def test_the_jobs_of_a_killed_worker_fail_within_a_lease_and_a_scan_and_no_others(consumer: Consumer) -> None:
    consumer.serve("--workers", "2", processing_lease=LEASE, recovery_scan_interval=SCAN)
    workers = consumer.processes(2)
    job_id = consumer.submit("slow", {"n": 60, "every": 0.1}).json()["jobId"]
    [run] = wait_until(consumer.store.runs, 10, "the run")
    assert run.pid in workers
    for _ in range(6):
        consumer.submit("slow", {"n": 3})
    runs = wait_until(lambda: len(found := consumer.store.runs()) == 7 and found, 10, "the other runs")
    os.kill(run.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    wait_until(lambda: consumer.store.job(job_id).status == "FAILED", LEASE + SCAN + SLACK, "the recovery")
    assert time.monotonic() - killed_at > LEASE / 2
    check_timeout(consumer, job_id)

    lost = [each for each in runs if each.pid == run.pid]
    consumer.wait_for_states(FAILED=len(lost), COMPLETED=7 - len(lost))
    assert {consumer.store.job(each.job_id).status for each in lost} == {"FAILED"}
    assert len(consumer.store.runs()) == 7


def test_the_job_of_the_only_worker_fails_when_a_new_one_has_started(consumer: Consumer) -> None:
    consumer.serve("--workers", "1", processing_lease=LEASE, recovery_scan_interval=SCAN)
    [worker] = consumer.processes(1)
    accepted = consumer.submit("slow", {"n": 60, "every": 0.1})
    wait_until(consumer.store.runs, 10, "the run")
    os.kill(worker, signal.SIGKILL)
    consumer.follow(accepted, timeout=10)
    check_timeout(consumer, accepted.json()["jobId"])
    assert consumer.processes(1) != {worker}


def test_a_handler_that_ends_its_process_fails_its_own_job_and_no_other(consumer: Consumer) -> None:
    consumer.serve("--workers", "2", processing_lease=LEASE, recovery_scan_interval=SCAN)
    consumer.processes(2)
    answers = []
    with suppress(httpx.TransportError):  # the process may have ended before it answered
        answers.append(consumer.submit("die"))
    [run] = wait_until(consumer.store.runs, 10, "the run")
    job_id = run.job_id
    assert [answer.json()["jobId"] for answer in answers] in ([], [job_id])
    wait_until(lambda: consumer.store.job(job_id).status == "FAILED", LEASE + SCAN + SLACK, "the recovery")
    check_timeout(consumer, job_id)
    assert consumer.run("quick").json()["status"] == "COMPLETED"
    assert [run.job_id for run in consumer.store.runs()].count(job_id) == 1


def check_timeout(consumer: Consumer, job_id: str) -> None:
    """Check how a client is told of a job whose process died."""
    status = consumer.http.get(f"/jobs/{job_id}/status")
    problem = status.json()
    assert status.status_code == 422
    assert (problem["title"], problem["code"]) == ("Processing timeout", "processing-timeout")
    assert (problem["jobStatus"], problem["attempt"]) == ("FAILED", 1)
    assert "Retry-After" not in status.headers
