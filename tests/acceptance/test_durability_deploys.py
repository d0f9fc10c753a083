"""Processes come and go, by a signal or by their server's will; no job is lost."""

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import httpx
import pytest

from tests.acceptance.apps.harness import CONSUMER, Consumer
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

PACE = Event()
LEASE, SHUTDOWN, GRACE, SLACK = 1, 3, 4, 3
PAYLOADS = [{"n": n, "text": "é\u2028\"'\\ %s", "big": 2**63 + n, "deep": [{"x": None}, [True]]} for n in range(30)]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_deployment_loses_no_job_and_starts_none_while_the_old_process_ends(
    consumer: Consumer, tmp_path: Path, how: signal.Signals
) -> None:
    gate, drained = tmp_path / "gate", how == signal.SIGTERM
    settings = {"HANDLERS": {"gate": {"max_attempts": 2}}, "processing_lease": LEASE, "backpressure": "queue"}
    options = ["--threads", "4", "--graceful-timeout", str(GRACE)]
    served = consumer.serve(*options, processing_concurrency_limit=3, shutdown_timeout=SHUTDOWN, **settings)
    ids = {
        "once": consumer.submit("slow", {"n": 60, "every": 0.1}).json()["jobId"],
        "twice": consumer.submit("gate", {"file": str(gate)}).json()["jobId"],
        "short": consumer.submit("slow", {"n": 1.5 if drained else 60, "every": 0.1}).json()["jobId"],
    }
    wait_until(lambda: len(consumer.store.runs()) == 3, 10, "the runs")
    waiting = [consumer.submit("quick").json()["jobId"] for _ in range(5)]
    start = time.monotonic()
    if drained:
        served.terminate()
        assert served.wait(GRACE + 1) == 0
    else:
        served.kill()
    assert time.monotonic() - start < GRACE + 1
    assert consumer.store.job(ids["short"]).status == ("COMPLETED" if drained else "PROCESSING")
    assert {consumer.store.job(each).status for each in waiting} == {"PENDING"}
    assert len(consumer.store.runs()) == 3

    gate.touch()
    consumer.serve(*options, **settings)
    once = consumer.end_of(ids["once"], LEASE + 0.2 + SLACK)
    assert (once.json()["code"], once.json()["attempt"]) == ("processing-timeout", 1)
    twice = consumer.end_of(ids["twice"], SLACK)
    assert (twice.json()["status"], twice.json()["attempt"]) == ("COMPLETED", 2)
    completed = 7 if drained else 6
    consumer.wait_for_states(COMPLETED=completed, FAILED=8 - completed)
    runs = sorted((run.job_id, run.attempt) for run in consumer.store.runs())
    assert runs == sorted([*((each, 1) for each in [*ids.values(), *waiting]), (ids["twice"], 2)])


def test_workers_that_are_recycled_under_their_jobs_lose_none(consumer: Consumer) -> None:
    served = consumer.serve("--workers", "2", "--max-requests", "10")
    with ThreadPoolExecutor(6) as clients:
        ids = list(clients.map(lambda number: insist(consumer, number), range(60)))
    assert len(set(ids)) == 60
    wait_until(lambda: completed(consumer, 60), 60, lambda: str(consumer.store.states()))
    runs = consumer.store.runs()
    assert sorted(run.job_id for run in runs) == sorted(ids)
    assert len({run.pid for run in runs}) > 3
    assert served.log_text().count("Autorestarting worker") > 4
    assert consumer.store.attempts() == {1}
    assert consumer.new_trouble() == []


def test_what_was_accepted_before_a_kill_runs_once_each_on_another_server(
    postgres_consumer: Consumer, tmp_path: Path
) -> None:
    consumer, gate = postgres_consumer, str(tmp_path / "never")
    settings = {"processing_concurrency_limit": 1, "backpressure": "queue", "processing_lease": LEASE}
    served = consumer.serve("--threads", "4", **settings)
    busy = consumer.submit("gate", {"file": gate}).json()["jobId"]
    wait_until(consumer.store.runs, 10, "the run")
    answers = [consumer.submit("ret", {"value": payload}) for payload in PAYLOADS]
    served.kill()
    assert {answer.status_code for answer in answers} == {202}
    ids = [answer.json()["jobId"] for answer in answers]
    assert consumer.store.states() == {"PROCESSING": 1, "PENDING": 30}

    consumer.serve("--threads", "4", **settings)
    consumer.processes(1)
    consumer.wait_for_states(COMPLETED=30, FAILED=1)
    assert [run.job_id for run in consumer.store.runs()] == [busy, *ids]
    rows = [consumer.store.job(each) for each in ids]
    assert [json.loads(row.payload)["value"] for row in rows] == PAYLOADS
    assert [json.loads(row.result) for row in rows] == PAYLOADS
    assert {row.attempt for row in rows} == {1}


def test_a_worker_of_gunicorn_that_starts_the_library_itself_runs_jobs_before_any_request(
    consumer: Consumer,
) -> None:
    orphans = [consumer.store.add_orphan("quick") for _ in range(4)]
    consumer.serve("--workers", "2", "--config", str(CONSUMER.with_name("gunicorn_hooks.py")))
    consumer.wait_for_states(COMPLETED=4)
    assert sorted(run.job_id for run in consumer.store.runs()) == sorted(orphans)
    assert consumer.new_trouble() == []


def completed(consumer: Consumer, count: int) -> bool:
    """Ask for the process's health, which starts a worker that nobody has asked yet; then look at the jobs."""
    PACE.wait(0.3)
    with suppress(httpx.TransportError):
        consumer.http.get("/")
    return consumer.store.states() == {"COMPLETED": count}


def insist(consumer: Consumer, number: int) -> str:
    """Submit until it is accepted, as clients do that lose a connection; ask for every third job. Return the id."""

    def accepted() -> str | None:
        with suppress(httpx.TransportError):
            answer = consumer.submit("slow", {"n": 0.6, "every": 0.2}, key=f"job-{number}")
            assert answer.status_code == 202, answer.text
            return str(answer.json()["jobId"])
        return None

    def known() -> bool:
        with suppress(httpx.TransportError):
            answer = consumer.http.get(f"/jobs/{job_id}/status")
            assert (answer.status_code, answer.json()["jobId"]) == (200, job_id)
            return True
        return False

    job_id = wait_until(accepted, 30, "a 202")
    if number % 3 == 0:
        wait_until(known, 30, "the status")
    return job_id
