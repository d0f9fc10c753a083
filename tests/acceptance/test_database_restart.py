"""The database stops under load and starts again: answers in time, no end made up, no restart of the server."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest

from tests.acceptance.apps.harness import at_once, consuming
from tests.acceptance.apps.store import TERMINAL
from tests.databases import create_tables
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import proxied
from tests.serving import Serve
from tests.waiting import wait_until

pytestmark = pytest.mark.acceptance

AWAY = 3.0
"""Seconds."""


def test_a_restart_of_the_database_needs_no_restart_of_the_workers(
    breakable_postgres: PostgresServer, serve: Serve
) -> None:
    url = breakable_postgres.create_database("restarted")
    create_tables(url)
    with consuming(url, serve) as consumer:
        served = consumer.serve("--workers", "2", "--threads", "8", sse_poll_interval=0.1, sse_heartbeat=0.5)
        processes = consumer.processes(2)
        followed = [consumer.submit("slow", {"n": AWAY + 4, "every": 0.2}) for _ in range(2)]
        accepted = [answer.headers["Location"] for answer in followed]
        streams = [Stream(consumer.http, answer.json()["eventsUrl"]) for answer in followed]
        wait_until(lambda: all(stream.events["progress"] for stream in streams), 10, "progress")
        breakable_postgres.stop()
        seen = Counter[tuple[str, int]]()
        until, longest = time.monotonic() + AWAY, 0.0
        while time.monotonic() < until:
            for method, path in (("POST", "/jobs/quick"), ("GET", accepted[0]), ("DELETE", accepted[1])):
                asked = time.monotonic()
                answer = consumer.http.request(method, path)
                longest = max(longest, time.monotonic() - asked)
                seen[method, answer.status_code] += 1
                assert answer.headers["Retry-After"]
                assert answer.json()["type"].endswith(":storage-unavailable")
        assert seen.keys() == {("POST", 503), ("GET", 503), ("DELETE", 503)}
        assert longest < 10
        assert all(not stream.ends for stream in streams)
        breakable_postgres.start()

        started = time.monotonic()
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(lambda _: accepted_at_last(consumer.http), range(40)))
        assert time.monotonic() - started < 8
        accepted += answers
        assert consumer.processes(2) == processes
        assert {answer.status_code for answer in at_once([lambda: consumer.http.get(accepted[0])] * 20)} == {200}
        wait_until(lambda: consumer.store.states().keys() <= TERMINAL, 20, lambda: str(consumer.store.states()))
        for stream in streams:
            stream.join()
            assert stream.ends == ["complete"]
        assert consumer.store.states() == {"COMPLETED": len(accepted)}
        assert {run.attempt for run in consumer.store.runs()} == {1}
        assert len(consumer.store.runs()) == len(accepted)
        assert len(consumer.new_trouble()) <= 4
        assert served.is_running


def test_a_server_whose_database_went_silent_answers_and_ends_in_time(postgres_url: str, serve: Serve) -> None:
    with consuming(postgres_url, serve) as consumer, proxied(postgres_url) as (proxy, engine):
        url = engine.url.render_as_string(hide_password=False)
        settings = {"shutdown_timeout": 1, "processing_lease": 6}
        served = consumer.serve("--workers", "2", "--threads", "8", DATABASE_URL=url, **settings)
        consumer.processes(2)
        ended = consumer.run("quick").json()["jobId"]
        proxy.freeze()
        requests = [("POST", "/jobs/quick"), ("GET", f"/jobs/{ended}"), ("DELETE", f"/jobs/{ended}")] * 4
        begun = time.monotonic()
        answers = at_once([partial(consumer.http.request, *request) for request in requests])
        assert {answer.status_code for answer in answers} == {503}
        assert time.monotonic() - begun < 10
        proxy.thaw()
        wait_until(lambda: consumer.submit("quick").status_code == 202, 10)
        wait_until(lambda: consumer.store.states().keys() <= TERMINAL, 20, lambda: str(consumer.store.states()))
        assert consumer.store.states().keys() == {"COMPLETED"}
        proxy.freeze()
        served.terminate()
        served.wait(10)


def accepted_at_last(http: httpx.Client) -> str:
    """Submit until it is accepted, and return the status URL."""

    def accepted() -> str | None:
        answer = http.post("/jobs/quick")
        assert answer.status_code in (202, 503)
        return answer.headers.get("Location")

    return wait_until(accepted, 10, "an acceptance")


class Stream(threading.Thread):
    """Follows the event stream of a job, and again as soon as it breaks, until it is told the end."""

    def __init__(self, http: httpx.Client, url: str) -> None:
        super().__init__(daemon=True)
        self.events = Counter[str]()
        self._http, self._url = http, url
        self.start()

    @property
    def ends(self) -> list[str]:
        """The terminal events that came."""
        return [name for name in ("complete", "failed", "cancelled") for _ in range(self.events[name])]

    def run(self) -> None:
        while not self.ends:
            with self._http.stream("GET", self._url) as answer:
                for line in answer.iter_lines():
                    if line.startswith("event: "):
                        self.events[line.removeprefix("event: ")] += 1
