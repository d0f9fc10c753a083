"""Fewer connections than handlers and requests."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.acceptance.apps.harness import CONSUMER, Consumer
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

DURABLE = CONSUMER.with_name("durable.py")
PACE = Event()


def test_a_small_pool_serves_many_handlers_and_requests(postgres_consumer: Consumer, tmp_path: Path) -> None:
    consumer, gate = postgres_consumer, tmp_path / "gate"
    pool = {"pool_size": 3, "max_overflow": 0, "pool_timeout": 2}
    served = consumer.serve("--threads", "12", ENGINE_OPTIONS=pool)
    reporting = {"n": 60, "every": 0.2, "file": str(gate)}
    ids = [consumer.submit("slow", reporting).json()["jobId"] for _ in range(10)]
    wait_until(lambda: len(consumer.store.runs()) == 10, 10, "the runs")
    with sampled_pool(consumer) as samples, ThreadPoolExecutor(8) as clients:
        paths = [f"/jobs/{each}/status" for each in ids] * 10
        answers = list(clients.map(consumer.http.get, paths))
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.json()["status"] for answer in answers} == {"PROCESSING"}
        wait_until(lambda: len(samples) > 100, 30, "samples")
        gate.touch()
        consumer.wait_for_states(COMPLETED=10)
    assert longest_at(3, samples) < 1
    assert len(consumer.store.runs()) == 10
    assert "TimeoutError" not in served.log_text()
    assert consumer.new_trouble() == []


def test_handlers_that_hold_every_connection_stop_neither_requests_nor_themselves(
    postgres_consumer: Consumer,
) -> None:
    consumer = postgres_consumer
    pool = {"pool_size": 4, "max_overflow": 0}
    served = consumer.serve(
        "--threads",
        "12",
        application=DURABLE,
        processing_concurrency_limit=8,
        backpressure="queue",
        ENGINE_OPTIONS=pool,
    )
    consumer.processes(1)
    warnings = [line for line in served.log_text().splitlines() if line.startswith("WARNING flask_async_jobs")]
    assert any(re.search(r"pool.*\b4\b.*\b8\b", line) for line in warnings)
    ids = [consumer.store.add_orphan("hold", {"n": 5, "every": 0.5}) for _ in range(8)]
    wait_until(lambda: len(consumer.store.runs()) == 8, 10, "the runs")
    wait_until(lambda: pool_of(consumer) == 4, 5, "the pool to be empty")

    def asked(job_id: str) -> list[tuple[int, float, bool]]:
        answers = []
        while consumer.store.states() != {"COMPLETED": 8} and len(consumer.store.notes()) < 8:
            start = time.monotonic()
            answer = consumer.http.get(f"/jobs/{job_id}/status")
            answers.append((answer.status_code, time.monotonic() - start, "Retry-After" in answer.headers))
        return answers

    with ThreadPoolExecutor(8) as clients:
        answers = [answer for each in clients.map(asked, ids) for answer in each]
    assert {code for code, _, _ in answers} <= {200, 503}
    assert max(seconds for _, seconds, _ in answers) < 10
    assert all(retry_after for code, _, retry_after in answers if code == 503)
    consumer.wait_for_states(COMPLETED=8)
    assert consumer.store.attempts() == {1}
    assert len(consumer.store.runs()) == 8
    assert max(map(float, consumer.store.notes())) < 2
    assert consumer.run("quick").json()["status"] == "COMPLETED"
    wait_until(lambda: pool_of(consumer) == 0, 5, "the pool to be full again")


def pool_of(consumer: Consumer) -> int:
    """How many connections are checked out at the moment."""
    return int(consumer.http.get("/pool").json()["checkedOut"])


@contextmanager
def sampled_pool(consumer: Consumer) -> Iterator[list[tuple[float, int]]]:
    """Note again and again how many connections are checked out."""
    samples: list[tuple[float, int]] = []
    done = Event()

    def sample() -> None:
        while not done.wait(0.02):
            samples.append((time.monotonic(), pool_of(consumer)))

    thread = Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def longest_at(level: int, samples: list[tuple[float, int]]) -> float:
    """For how many seconds every sample was at a level, at most."""
    longest, since = 0.0, None
    for instant, checked_out in samples:
        if checked_out < level:
            since = None
            continue
        since = instant if since is None else since
        longest = max(longest, instant - since)
    return longest
