"""What was cancelled stays cancelled, at whatever moment of a job it happens."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import httpx
import pytest

from tests.acceptance.apps.harness import Consumer
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

JOBS, STEP, LENGTH = 30, 0.1, 2.4
PACE = Event()


def test_a_cancellation_is_final_or_refused_at_every_moment_of_a_job(consumer: Consumer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    consumer.serve("--threads", "8", processing_concurrency_limit=JOBS, backpressure="queue")
    for _ in range(JOBS):
        consumer.submit("slow", {"n": LENGTH, "every": 0.4})
    runs = wait_until(lambda: len(found := consumer.store.runs()) == JOBS and found, 15, "the runs")
    due = [(run.at + STEP * number, run.job_id) for number, run in enumerate(runs, 1)]
    answers = dict(cancelled_at(consumer, *each) for each in sorted(due))
    assert {answer.status_code for answer in answers.values()} == {202, 409}

    for _ in range(JOBS):  # they all run at once only when every slot has come free again
        consumer.submit("gate", {"file": str(gate)})
    wait_until(lambda: len(consumer.store.runs()) == 2 * JOBS, 15, "the slots")
    gate.touch()
    for job_id, answer in answers.items():
        check_final(consumer, job_id, answer)
    assert consumer.new_trouble() == []


def test_a_cancellation_is_final_or_refused_while_a_job_is_claimed_and_completed(consumer: Consumer) -> None:
    consumer.serve("--workers", "2", "--threads", "4")
    consumer.processes(2)

    def submit_and_cancel(_: int) -> tuple[str, httpx.Response]:
        job_id = consumer.submit("quick").json()["jobId"]
        return job_id, consumer.http.delete(f"/jobs/{job_id}")

    with ThreadPoolExecutor(4) as clients:
        answers = dict(clients.map(submit_and_cancel, range(60)))
    cancelled = [answer.status_code for answer in answers.values()].count(202)
    consumer.wait_for_states(**{s: n for s, n in (("CANCELLED", cancelled), ("COMPLETED", 60 - cancelled)) if n})
    for job_id, answer in answers.items():
        check_final(consumer, job_id, answer)
    assert consumer.new_trouble() == []


def test_the_report_of_a_cancelled_job_is_refused_so_that_its_handler_stops(consumer: Consumer) -> None:
    consumer.serve("--threads", "4", processing_concurrency_limit=1, backpressure="queue")
    endless = consumer.submit("slow", {"n": 3600, "every": 0.2}).json()["jobId"]
    wait_until(consumer.store.runs, 10, "the run")
    after = consumer.submit("quick").json()["jobId"]
    assert consumer.http.delete(f"/jobs/{endless}").status_code == 202
    assert consumer.end_of(after, 5).json()["status"] == "COMPLETED"
    assert consumer.store.job(endless).status == "CANCELLED"


def cancelled_at(consumer: Consumer, instant: float, job_id: str) -> tuple[str, httpx.Response]:
    PACE.wait(max(0.0, instant - time.time()))
    return job_id, consumer.http.delete(f"/jobs/{job_id}")


def check_final(consumer: Consumer, job_id: str, answer: httpx.Response) -> None:
    """Check that the answer to a cancellation was the truth, and that the next one is refused."""
    state = consumer.store.job(job_id).status
    if answer.status_code == 202:
        assert (answer.json()["status"], state) == ("CANCELLED", "CANCELLED")
    else:
        assert (answer.status_code, answer.json()["jobStatus"], state) == (409, "COMPLETED", "COMPLETED")
    again = consumer.http.delete(f"/jobs/{job_id}")
    assert (again.status_code, again.json()["jobStatus"]) == (409, state)
    assert again.json()["type"] == "urn:flask-async-jobs:problem:already-terminal"
