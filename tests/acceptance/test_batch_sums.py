"""A batch whose items end in every way: at every look the parts add up to the whole, and the end is told once."""

from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest

from tests.acceptance.apps.harness import CONSUMER, Consumer
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

BATCHING = CONSUMER.with_name("batching.py")
PARTS = ("pending", "processing", "completed", "failed", "cancelled")
TOTAL, COMPLETING, FAILING, WAITING, DEADLY = 100, 60, 30, 5, 5


def test_the_parts_of_a_batch_add_up_while_items_fail_are_cancelled_and_die_with_their_process(
    consumer: Consumer, tmp_path: Path
) -> None:
    consumer.serve(
        "--workers", "2", "--threads", "4", application=BATCHING, processing_concurrency_limit=8, processing_lease=1
    )
    gate = tmp_path / "gate"
    ways = [*["wait"] * WAITING, *["fail"] * FAILING, *["complete"] * COMPLETING, *["die"] * DEADLY]
    items = [{"itemId": str(number), "payload": {"how": how, "file": str(gate)}} for number, how in enumerate(ways)]
    accepted = submit(consumer, items, "all")
    url = accepted["statusUrl"]
    watcher = Watcher(consumer, url)
    for item in consumer.http.get(accepted["itemsUrl"], params={"limit": WAITING}).json()["items"]:
        assert consumer.http.delete(f"/jobs/{item['jobId']}").status_code == 202
    wait_until(lambda: watcher.last("processing") == DEADLY and not watcher.last("pending"), 30)
    wait_until(lambda: len(watcher.seen) > 20, 30, "as many looks as make a check of the sums")
    gate.touch()
    wait_until(lambda: watcher.last("status") == "COMPLETED", 30, lambda: str(watcher.seen[-1]))
    watcher.stop()
    for seen in watcher.seen:
        assert sum(seen[part] for part in PARTS) == seen["total"] == TOTAL
        active = seen["pending"] + seen["processing"]
        assert (seen["status"] == "COMPLETED") is (active == 0) is (seen.get("completedAt") is not None)
    assert [watcher.last(part) for part in PARTS] == [0, 0, COMPLETING, FAILING + DEADLY, WAITING]
    assert len(watcher.seen) > 20
    assert {seen["status"] for seen in watcher.seen} >= {"PROCESSING", "COMPLETED"}


def test_a_batch_of_one_item_that_fails_is_no_success(consumer: Consumer) -> None:
    consumer.serve(application=BATCHING)
    accepted = submit(consumer, [{"itemId": "only", "payload": {"how": "fail", "file": ""}}], "one")

    def ended() -> Any:
        seen = consumer.http.get(accepted["statusUrl"]).json()
        return seen if seen["status"] == "COMPLETED" else None

    assert [wait_until(ended)[part] for part in PARTS] == [0, 0, 0, 1, 0]


def submit(consumer: Consumer, items: list[dict[str, Any]], key: str) -> dict[str, Any]:
    answer = consumer.http.post("/batches/item", json={"items": items}, headers={"Idempotency-Key": key})
    assert answer.status_code == 202, answer.text
    accepted: dict[str, Any] = answer.json()
    return accepted


class Watcher(Thread):
    """Looks at a batch again and again, until it is told to stop."""

    def __init__(self, consumer: Consumer, url: str) -> None:
        super().__init__(daemon=True)
        self.seen: list[dict[str, Any]] = []
        self._consumer, self._url, self._over = consumer, url, Event()
        self.start()

    def run(self) -> None:
        while not self._over.is_set():
            try:
                answer = self._consumer.http.get(self._url)
            except httpx.TransportError:  # a worker that dies takes its connections along
                continue
            assert answer.status_code == 200
            self.seen.append(answer.json())

    def last(self, member: str) -> Any:
        """What the newest look showed."""
        return self.seen[-1][member] if self.seen else None

    def stop(self) -> None:
        self._over.set()
        self.join(10)
