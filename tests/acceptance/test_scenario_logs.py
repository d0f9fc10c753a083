"""The log across processes: followed live, resumed after a crash, and written before a process ends."""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.acceptance.apps.harness import Consumer
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

SHORT_LEASE = {"processing_lease": 1, "recovery_processing_timeout": 1}
TWICE = {"lines": {"max_attempts": 2}}


def followed(consumer: Consumer, job_id: str, known: int) -> Iterator[tuple[str, int | None, Any]]:
    """Follow the log after line `known`, as (event, id, data), until the stream ends or breaks."""
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(known)}
    fields: dict[str, str] = {}
    try:
        with consumer.http.stream("GET", f"/jobs/{job_id}/log", headers=headers) as response:
            assert response.status_code == 200
            for line in response.iter_lines():
                if not line and fields:
                    number = int(fields["id"]) if "id" in fields else None
                    yield fields["event"], number, json.loads(fields["data"])
                    fields = {}
                elif line and not line.startswith(":"):
                    name, _, value = line.partition(": ")
                    fields[name] = value
    except httpx.TransportError:
        return


def test_a_log_that_is_resumed_after_a_crash_has_no_gap_and_no_duplicate(consumer: Consumer) -> None:
    served = consumer.serve("--threads", "8", HANDLERS=TWICE, **SHORT_LEASE)
    job_id = consumer.submit("lines", {"n": 2, "every": 0.02}).json()["jobId"]
    told: list[tuple[int, str]] = []
    for _, number, data in followed(consumer, job_id, 0):
        told.append((number or 0, data["line"]))
        if len(told) == 20:
            served.kill()
    assert len(told) >= 20
    consumer.serve("--threads", "8", HANDLERS=TWICE, **SHORT_LEASE)
    results = []
    while not results:
        for event, number, data in followed(consumer, job_id, told[-1][0]):
            if event == "result":
                results.append(data)
            else:
                told.append((number or 0, data["line"]))
    assert (results[0]["status"], results[0]["attempt"]) == ("COMPLETED", 2)
    assert [number for number, _ in told] == list(range(1, len(told) + 1))
    for attempt in (1, 2):
        own = [line for _, line in told if line.startswith(f"{attempt}:")]
        assert own == [f"{attempt}:{number}" for number in range(1, len(own) + 1)]
    assert len([line for _, line in told if line.startswith("2:")]) > 20
    page = consumer.http.get(f"/jobs/{job_id}/log", params={"limit": 1000}).json()
    assert [(line["id"], line["line"]) for line in page["lines"]] == told
    assert page["nextAfter"] is None


def test_a_stream_tells_what_another_process_logs_within_two_seconds(postgres_consumer: Consumer) -> None:
    consumer = postgres_consumer
    consumer.serve("--threads", "4", sse_poll_interval=0.5)
    consumer.processes(1)
    consumer.serve("--threads", "4", processing_enabled=False, sse_poll_interval=0.5)
    job_id = consumer.submit("lines", {"n": 2, "every": 0.3}).json()["jobId"]
    begun: list[float] = []
    late = []
    for event, _, data in followed(consumer, job_id, 0):
        if event == "progress":
            begun.append(time.monotonic())
            late.append(begun[-1] - begun[0] - 0.3 * (int(data["line"].partition(":")[2]) - 1))
    assert len(late) >= 5
    assert max(late) < 2


def test_what_a_handler_has_logged_is_written_before_its_process_ends(consumer: Consumer) -> None:
    served = consumer.serve("--threads", "4", shutdown_timeout=0.2, HANDLERS=TWICE)
    job_id = consumer.submit("lines", {"n": 60, "every": 0.01}).json()["jobId"]
    wait_until(lambda: consumer.http.get(f"/jobs/{job_id}/log").json()["nextAfter"] > 20)
    served.terminate()
    served.wait()
    logged = consumer.store.job(job_id)
    assert logged.status == "PROCESSING"
    consumer.serve("--threads", "4", processing_enabled=False)
    page = consumer.http.get(f"/jobs/{job_id}/log", params={"limit": 1000}).json()
    assert len(page["lines"]) == logged.log_lines
    assert [line["line"] for line in page["lines"]] == [f"1:{number}" for number in range(1, logged.log_lines + 1)]
