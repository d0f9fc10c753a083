"""`flask async-jobs worker`: it runs what others accept, and ends in order."""

import signal
import time
from pathlib import Path

import pytest

from tests.acceptance.apps.harness import Consumer
from tests.acceptance.apps.workers import working
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

EXIT = 1.5  # seconds for the interpreter to end, beyond the time that handlers are given


@pytest.fixture
def accepting(consumer: Consumer) -> Consumer:
    """The consumer, served by a process that runs no job itself."""
    consumer.serve("--threads", "4", processing_enabled=False, processing_lease=1)
    consumer.processes(1)
    return consumer


def test_a_process_that_only_accepts_leaves_every_job_to_a_worker_process(
    accepting: Consumer, tmp_path: Path
) -> None:
    start = time.monotonic()
    accepted = [accepting.submit("quick") for _ in range(6)]
    assert time.monotonic() - start < 3
    assert {(answer.status_code, answer.json()["status"]) for answer in accepted} == {(202, "PENDING")}
    assert accepting.store.states() == {"PENDING": 6}
    with working(accepting, tmp_path) as worker:
        accepting.wait_for_states(COMPLETED=6)
        accepting.run("quick")
        runs = accepting.store.runs()
        assert {run.pid for run in runs} == {worker.pid}
        assert len(runs) == len({run.job_id for run in runs}) == 7
        assert "Traceback" not in worker.log_text()
    assert accepting.new_trouble() == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_told_to_end_finishes_what_it_runs_and_claims_no_more(
    accepting: Consumer, tmp_path: Path, how: signal.Signals
) -> None:
    with working(accepting, tmp_path, processing_concurrency_limit=1, shutdown_timeout=5) as worker:
        running = accepting.submit("slow", {"n": 1.5, "every": 0.2}).json()["jobId"]
        wait_until(accepting.store.runs, 10, "the run")
        waiting = [accepting.submit("quick").json()["jobId"] for _ in range(3)]
        worker.signal(how)
        assert worker.wait(5 + EXIT) == 0
        assert "Traceback" not in worker.log_text()
    assert accepting.store.job(running).status == "COMPLETED"
    assert {accepting.store.job(each).status for each in waiting} == {"PENDING"}
    assert [run.job_id for run in accepting.store.runs()] == [running]


def test_a_worker_with_a_handler_that_never_ends_still_ends_in_time(accepting: Consumer, tmp_path: Path) -> None:
    with working(accepting, tmp_path, processing_lease=1, shutdown_timeout=1) as worker:
        endless = accepting.submit("silent", {"n": 3600})
        wait_until(accepting.store.runs, 10, "the run")
        start = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait(1 + EXIT) == 0
        assert time.monotonic() - start >= 1
        assert "Traceback" not in worker.log_text()
    ended = accepting.follow(endless)
    assert (ended.status_code, ended.json()["code"]) == (422, "processing-timeout")
    assert len(accepting.store.runs()) == 1
