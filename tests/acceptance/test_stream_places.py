"""Streams leave room for other requests, and whoever goes away leaves nothing behind."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.acceptance.apps.harness import Consumer, at_once
from tests.acceptance.apps.streams import connected, events_of_orphan, opened, read_to_the_end, reset
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

HEARTBEAT = 1
READERS = 30
CLIENTS = 1000
MANY = {"sse_max_streams": CLIENTS, "sse_max_subscribers": CLIENTS, "ENGINE_OPTIONS": {"pool_size": 1}}
WORKERS = [["--worker-class", "gthread", "--threads", str(READERS + 1)], ["--worker-class", "gevent"]]


class Footprint(NamedTuple):
    """What a process holds."""

    threads: int
    descriptors: int
    connections: int

    def is_back_at(self, before: "Footprint") -> bool:
        """Whether no figure is above what it was by more than one."""
        return all(now <= then + 1 for now, then in zip(self, before, strict=True))


def test_streams_leave_threads_to_other_requests(consumer: Consumer) -> None:
    consumer.serve("--threads", "4", sse_max_streams=2, sse_heartbeat=0.2)
    url = events_of_orphan(consumer)
    first, second = opened(url), opened(url)
    refused = [timed(lambda: consumer.http.get(url)) for _ in range(4)]
    statuses = [timed(lambda: consumer.http.get(url.replace("/events", "/status"))) for _ in range(20)]
    assert {answer.status_code for answer, _ in refused} == {503}
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer, _ in refused)
    assert {answer.status_code for answer, _ in statuses} == {200}
    assert max(seconds for _, seconds in refused + statuses) < 1
    first.close()
    wait_until(lambda: places(consumer, url) == 200, 5, "the place of the one who left")
    consumer.http.delete(url.removesuffix("/events"))
    read_to_the_end(second)
    other = events_of_orphan(consumer)
    wait_until(lambda: places(consumer, other) == 200, 5, "the place of the one that ended")


def test_a_stream_ends_by_itself_after_the_retention_and_may_be_opened_again(consumer: Consumer) -> None:
    consumer.serve("--threads", "4", sse_max_streams=1, sse_heartbeat=0.2, retention=1)
    url = f"/jobs/{consumer.store.add_orphan('unheard-of')}/events"
    for _ in range(2):
        answer, seconds = timed(lambda: consumer.http.get(url))
        assert (answer.status_code, answer.text.count("event: ")) == (200, 1)
        assert 0.9 < seconds < 10


@pytest.mark.parametrize("arguments", WORKERS, ids=["gthread", "gevent"])
def test_readers_that_went_away_are_forgotten_within_two_heartbeats(
    consumer: Consumer, arguments: list[str]
) -> None:
    consumer.serve(*arguments, **MANY, sse_heartbeat=HEARTBEAT)
    [pid] = consumer.processes(1)
    url = events_of_orphan(consumer)
    before = warmed(consumer, pid)
    readers = at_once([lambda: opened(url)] * READERS)
    assert footprint(consumer, pid).descriptors >= before.descriptors + READERS // 2
    for leave, reader in zip((reset, type(readers[0]).close) * (READERS // 2), readers, strict=True):
        leave(reader)
    left = time.monotonic()
    wait_until(
        lambda: footprint(consumer, pid).is_back_at(before), 10, lambda: f"{footprint(consumer, pid)}, {before}"
    )
    assert time.monotonic() - left < 2 * HEARTBEAT + 1


@pytest.mark.parametrize("arguments", WORKERS, ids=["gthread", "gevent"])
def test_a_thousand_clients_that_connect_and_drop_leave_nothing(
    postgres_consumer: Consumer, arguments: list[str]
) -> None:
    consumer = postgres_consumer
    consumer.serve(*arguments, **MANY, sse_heartbeat=0.2)
    [pid] = consumer.processes(1)
    url = events_of_orphan(consumer)
    ways: list[Callable[[], object]] = [
        lambda: reset(connected(url)),
        lambda: connected(url).close(),
        lambda: reset(opened(url)),
        lambda: opened(url).close(),
    ]
    before = warmed(consumer, pid)
    for _ in range(CLIENTS // len(ways) // 10):
        at_once(ways * 10)
    wait_until(
        lambda: footprint(consumer, pid).is_back_at(before), 20, lambda: f"{footprint(consumer, pid)}, {before}"
    )
    assert consumer.run("quick").json()["status"] == "COMPLETED"
    assert consumer.new_trouble() == []


def timed(ask: Callable[[], httpx.Response]) -> tuple[httpx.Response, float]:
    start = time.monotonic()
    return ask(), time.monotonic() - start


def places(consumer: Consumer, url: str) -> int:
    with consumer.http.stream("GET", url) as answer:
        return answer.status_code


def footprint(consumer: Consumer, pid: int) -> Footprint:
    process = Path(f"/proc/{pid}")
    return Footprint(len(os.listdir(process / "task")), descriptors(process / "fd"), consumer.store.connections())


def descriptors(folder: Path) -> int:
    """How many are open; without those of a SQLite file, which SQLite keeps for its next connections."""
    count = 0
    for each in folder.iterdir():
        with suppress(FileNotFoundError):
            count += ".sqlite" not in os.readlink(each)
    return count


def warmed(consumer: Consumer, pid: int) -> Footprint:
    """What the process holds after all its threads were busy; what it keeps for good is made by then."""
    url = events_of_orphan(consumer)
    streams = at_once([lambda: opened(url)] * READERS)
    consumer.http.delete(url.removesuffix("/events"))
    at_once([partial(read_to_the_end, stream) for stream in streams])
    return footprint(consumer, pid)
