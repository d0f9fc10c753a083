"""Batches over real processes: one for a key, nothing before the commit, and every item ended after a crash."""

import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.apps.harness import Consumer, at_once
from tests.acceptance.apps.workers import working

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

SETTINGS = {"HANDLERS": {"gate": {"max_attempts": 2}}, "processing_lease": 1, "processing_concurrency_limit": 1}
COUNTS = ("pending", "processing", "completed", "failed", "cancelled")


def submit(consumer: Consumer, type: str, payloads: list[Any], key: str = "k") -> httpx.Response:
    items = [{"itemId": f"item-{n}", "payload": payload} for n, payload in enumerate(payloads, start=1)]
    return consumer.http.post(f"/batches/{type}", json={"items": items}, headers={"Idempotency-Key": key})


def counts(summary: httpx.Response) -> tuple[int, ...]:
    return tuple(summary.json()[name] for name in COUNTS)


def test_a_batch_outlives_the_process_that_ran_it(consumer: Consumer, tmp_path: Path) -> None:
    """One item has completed, one is being worked on and one waits when the process dies."""
    gates = [tmp_path / f"gate-{n}" for n in range(3)]
    gates[0].touch()
    consumer.serve("--threads", "4", processing_enabled=False, **SETTINGS)
    accepted = submit(consumer, "gate", [{"file": str(gate)} for gate in gates])
    url = accepted.json()["statusUrl"]
    with working(consumer, tmp_path, **SETTINGS) as worker:
        consumer.wait_for_states(COMPLETED=1, PROCESSING=1, PENDING=1)
        assert counts(consumer.http.get(url)) == (1, 1, 1, 0, 0)
        worker.signal(signal.SIGKILL)
        worker.wait()
    for gate in gates:
        gate.touch()
    with working(consumer, tmp_path, **SETTINGS):
        consumer.wait_for_states(COMPLETED=3)
    consumer.serve("--threads", "4", processing_enabled=False, **SETTINGS)
    summary = consumer.http.get(f"/batches/{accepted.json()['batchId']}")
    assert (summary.json()["status"], counts(summary)) == ("COMPLETED", (0, 0, 3, 0, 0))
    items = consumer.http.get(f"/batches/{accepted.json()['batchId']}/items").json()["items"]
    assert [item["itemId"] for item in items] == ["item-1", "item-2", "item-3"]
    attempts = [consumer.http.get(f"/jobs/{item['jobId']}").json()["attempt"] for item in items]
    assert attempts == [1, 2, 1]
    again = submit(consumer, "gate", [{"file": str(gate)} for gate in gates])
    assert (again.status_code, again.json()["batchId"]) == (200, accepted.json()["batchId"])


def test_ten_clients_with_one_key_make_one_batch_whose_items_run_once(consumer: Consumer) -> None:
    consumer.serve("--workers", "2", "--threads", "8")
    answers = at_once([lambda: submit(consumer, "ret", [{"value": n} for n in range(20)])] * 10)
    assert {answer.status_code for answer in answers} <= {200, 202}
    assert len({answer.json()["batchId"] for answer in answers}) == 1
    consumer.wait_for_states(COMPLETED=20)
    assert len(consumer.store.runs()) == 20
    page = consumer.http.get(f"/batches/{answers[0].json()['batchId']}/items?limit=100").json()
    assert [item["result"] for item in page["items"]] == list(range(20))


def test_a_batch_is_followed_to_its_end_from_another_process(consumer: Consumer) -> None:
    consumer.serve("--workers", "2", "--threads", "8", processing_concurrency_limit=2)
    accepted = submit(consumer, "slow", [{"n": 0.4, "every": 0.1}] * 8).json()
    with consumer.http.stream("GET", accepted["eventsUrl"]) as stream:
        lines = list(stream.iter_lines())
    assert lines[0] == ": ok"
    events = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert events[-1] == "complete"
    assert set(events[:-1]) == {"progress"}
    ids = [int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ")]
    assert ids == sorted(set(ids))
    last = {"Last-Event-ID": str(ids[-1])}
    assert consumer.http.get(accepted["eventsUrl"], headers=last).status_code == 204
