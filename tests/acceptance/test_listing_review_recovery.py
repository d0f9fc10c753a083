"""A batch outlives the processes that serve it and run it, with every result and every error."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.acceptance.apps.demos import ROOT
from tests.acceptance.apps.harness import client
from tests.acceptance.apps.store import Store
from tests.serving import Serve
from tests.waiting import wait_until

pytestmark = pytest.mark.acceptance

APPLICATION = ROOT / "examples" / "listing_review" / "app.py"
COUNTS = ("pending", "processing", "completed", "failed", "cancelled")
SETTINGS = {
    "PROCESSING_CONCURRENCY_LIMIT": "1",
    "PROCESSING_LEASE": "1",
    "PROCESSING_POLL_INTERVAL": "0.1",
    "RECOVERY_SCAN_INTERVAL": "0.2",
}
ENDLESS = "3600"
LISTING = {
    "title": "Desk lamp with dimmer",
    "description": "A lamp.",
    "price": 45,
    "attributes": {"brand": "Lumis"},
}
ITEMS = [
    {"itemId": "done", "payload": {**LISTING, "sku": "done"}},
    {"itemId": "blocked", "payload": {**LISTING, "sku": "blocked", "rehearse": "slow"}},
    {"itemId": "waiting", "payload": {**LISTING, "sku": "waiting", "rehearse": "invalid-answer"}},
]


class Site:
    """The example on one database, served by one process after the other."""

    def __init__(self, url: str, serve: Serve) -> None:
        self.store = Store(url)
        self.http = client()
        self._url = url
        self._serve = serve

    def serve(self, slow_seconds: str) -> Any:
        """Start a process in which a slow review takes so long, and send it a first request."""
        settings = {f"FLASK_ASYNC_JOBS_{name}": value for name, value in SETTINGS.items()}
        env = {"DATABASE_URL": self._url, "FLASK_REVIEW_SLOW_SECONDS": slow_seconds, **settings}
        server = self._serve(APPLICATION, "--threads", "4", server="gunicorn", env=env)
        self.http.base_url = server.url
        assert self.http.get("/").status_code == 200
        return server

    def counts(self, batch: str) -> tuple[int, ...]:
        summary = self.http.get(f"/batches/{batch}").json()
        return tuple(summary[name] for name in COUNTS)

    def pages(self, batch: str) -> list[dict[str, Any]]:
        """Two pages of the items, of two items and of one, which say so."""
        first = self.page(batch, after=0)
        second = self.page(batch, after=first["nextAfter"])
        assert [len(first["items"]), len(second["items"]), second["nextAfter"]] == [2, 1, None]
        return first["items"] + second["items"]

    def page(self, batch: str, after: int) -> dict[str, Any]:
        body: dict[str, Any] = self.http.get(f"/batches/{batch}/items", params={"after": after, "limit": 2}).json()
        return body

    def job(self, item: dict[str, Any]) -> httpx.Response:
        return self.http.get(f"/jobs/{item['jobId']}/status")


@pytest.fixture
def site(database_url: str, serve: Serve) -> Iterator[Site]:
    made = Site(database_url, serve)
    yield made
    made.http.close()
    made.store.close()


def test_a_batch_is_finished_by_the_next_process_and_nothing_completed_is_done_again(site: Site) -> None:
    first = site.serve(ENDLESS)
    accepted = site.http.post("/batches/review", json={"items": ITEMS}, headers={"Idempotency-Key": "monday-1"})
    assert accepted.status_code == 202, accepted.text
    batch = accepted.json()["batchId"]
    wait_until(lambda: site.counts(batch) == (1, 1, 1, 0, 0), 20, lambda: f"not {site.counts(batch)}")
    done = site.pages(batch)[0]
    assert (done["itemId"], done["status"]) == ("done", "COMPLETED")
    first.kill()

    second = site.serve("0")
    wait_until(lambda: site.counts(batch) == (0, 0, 2, 1, 0), 30, lambda: f"not {site.counts(batch)}")
    second.kill()

    site.serve("0")
    summary = site.http.get(f"/batches/{batch}").json()
    assert (summary["status"], summary["total"], site.counts(batch)) == ("COMPLETED", 3, (0, 0, 2, 1, 0))
    items = site.pages(batch)
    assert items[0] == done
    assert [item["itemId"] for item in items] == ["done", "blocked", "waiting"]
    assert [item["status"] for item in items] == ["COMPLETED", "COMPLETED", "FAILED"]
    assert [item["result"] and item["result"]["sku"] for item in items] == ["done", "blocked", None]
    assert [item["error"] and item["error"]["code"] for item in items] == [None, None, "invalid-review"]
    assert summary["completedAt"] == max(item["completedAt"] for item in items)
    assert [site.job(item).json()["attempt"] for item in items] == [1, 2, 1]
    assert site.store.path(items[0]["jobId"]) == ["PENDING", "PROCESSING", "COMPLETED"]
    assert site.store.path(items[1]["jobId"]) == [*["PENDING", "PROCESSING"] * 2, "COMPLETED"]
    assert site.store.path(items[2]["jobId"]) == ["PENDING", "PROCESSING", "FAILED"]
    again = site.http.post("/batches/review", json={"items": ITEMS}, headers={"Idempotency-Key": "monday-1"})
    assert (again.status_code, again.json()["batchId"]) == (200, batch)
    assert site.store.states() == {"COMPLETED": 2, "FAILED": 1}
