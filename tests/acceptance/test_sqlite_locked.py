"""On SQLite somebody else holds the write lock again and again: no request fails for good, no outcome is lost."""

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Thread

import httpx
import pytest

from tests.acceptance.apps.harness import consuming
from tests.acceptance.apps.store import TERMINAL
from tests.serving import Serve
from tests.waiting import wait_until

pytestmark = pytest.mark.acceptance

JOBS = 300
HELD, FREE = 2.0, 3.0
MOST_BUSY = 3
"""How many of the 660 requests may find the database busy for five seconds: SQLite's writers form no queue."""


@contextmanager
def locked_now_and_then(path: str) -> Iterator[None]:
    """Hold the write lock of a database for two seconds of every five, from the start to the end of the block."""
    over, held = Event(), Event()

    def hold() -> None:
        connection = sqlite3.connect(path, isolation_level=None, timeout=30)
        while not over.is_set():
            connection.execute("BEGIN IMMEDIATE")
            held.set()
            over.wait(HELD)
            connection.execute("ROLLBACK")
            over.wait(FREE)
        connection.close()

    thread = Thread(target=hold, daemon=True)
    thread.start()
    assert held.wait(10)
    try:
        yield
    finally:
        over.set()
        thread.join(10)


def test_a_writer_that_holds_the_lock_again_and_again_fails_no_request_for_good_and_loses_no_completion(
    sqlite_url: str, serve: Serve
) -> None:
    with consuming(sqlite_url, serve) as consumer:
        consumer.serve("--workers", "2", "--threads", "8", processing_concurrency_limit=4)
        consumer.processes(2)
        answers: Counter[tuple[str, int]] = Counter()

        def ask(send: Callable[[], httpx.Response]) -> httpx.Response:
            answer = send()
            answers[answer.request.method, answer.status_code] += 1
            return ask(send) if answer.status_code == 503 else answer

        def submit_and_look(number: int) -> None:
            url = ask(lambda: consumer.http.post("/jobs/quick")).headers["Location"]
            ask(lambda: consumer.http.get(url))
            if number % 5 == 0:
                ask(lambda: consumer.http.delete(url))

        with locked_now_and_then(sqlite_url.removeprefix("sqlite:///")):
            with ThreadPoolExecutor(8) as clients:
                list(clients.map(submit_and_look, range(JOBS)))
            wait_until(lambda: consumer.store.states().keys() <= TERMINAL, 30, lambda: str(consumer.store.states()))
        states, runs = consumer.store.states(), Counter(run.job_id for run in consumer.store.runs())
        busy = sum(times for (_, status), times in answers.items() if status == 503)
        assert {status for _, status in answers} <= {200, 202, 409, 503}, answers
        assert busy <= MOST_BUSY
        assert states.total() == JOBS
        assert states.keys() <= {"COMPLETED", "CANCELLED"}
        assert set(runs.values()) == {1}
        assert len(runs) >= states["COMPLETED"] >= JOBS - JOBS // 5
        assert busy or consumer.new_trouble() == []
