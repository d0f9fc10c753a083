"""The load: a few clients that submit one job after the other, and give up on none."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Final, Self

import httpx

from chaos.history import Accepted

CLIENTS: Final = 4
THINK: Final = 0.04
RETRY: Final = 0.1
GRACE: Final = 15.0
ANSWER_LIMIT: Final = 10.0
"""Seconds: the library answers every request in that time, whatever the state of the database."""


class Load:
    """Clients on threads, started as a context manager. Each sends a key until that is answered with 202.

    A 503 and a broken connection are what a client must expect, and it sends the same key again. Every other answer
    is noted as wrong, and so is one that took too long or that does not say when to come again.

    Attributes:
        accepted: Every 202.
        answers: How many answers there were of each kind; `None` for a broken connection.
        wrong: A sentence for each answer that there must not be.
        took: When each answer came (seconds since the epoch), and how many seconds after its request.
    """

    def __init__(self, url: str) -> None:
        self.accepted: list[Accepted] = []
        self.answers: Counter[int | None] = Counter()
        self.wrong: list[str] = []
        self.took: list[tuple[float, float]] = []
        self._url = f"{url}/jobs/work"
        self._repeated: list[str] = []
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._submit_jobs, args=(n,)) for n in range(CLIENTS)]

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Begin with no further key, and return when those under way are answered."""
        self._stopped.set()
        for each in self._threads:
            each.join()

    def ask_again(self) -> None:
        """Send once more each key that needed several requests: the answer must name the same job."""
        with _client() as client:
            for key in self._repeated:
                self._insist(client, key)

    def _submit_jobs(self, number: int) -> None:
        with _client() as client:
            count = 0
            while not self._stopped.is_set():
                self._insist(client, f"{number}-{count}")
                count += 1
                self._stopped.wait(THINK)

    def _insist(self, client: httpx.Client, key: str) -> None:
        requests = 1
        last = None
        while not (answered := self._submit(client, key)):
            requests += 1
            if self._stopped.is_set():
                last = last or time.monotonic() + GRACE
                if time.monotonic() > last:
                    break
            time.sleep(RETRY)
        if not answered:
            self.wrong.append(f"unanswered: the key {key} was refused for {GRACE} s after everything was back")
        elif requests > 1:
            self._repeated.append(key)

    def _submit(self, client: httpx.Client, key: str) -> bool:
        begun = time.monotonic()
        try:
            answer = client.post(self._url, headers={"Idempotency-Key": key})
            status: int | None = answer.status_code
        except httpx.TransportError as error:
            answer, status = None, None
            if isinstance(error, httpx.TimeoutException):
                self.wrong.append(f"silent: no answer to the key {key} in {ANSWER_LIMIT + 5} s")
        took = time.monotonic() - begun
        with self._lock:
            self.answers[status] += 1
        self.took.append((time.time(), took))
        if answer is not None:
            self._judge(answer, took)
        if answer is None or status != 202:
            return False
        self.accepted.append(Accepted(key, str(answer.json()["jobId"])))
        return True

    def _judge(self, answer: httpx.Response, took: float) -> None:
        if answer.status_code not in (202, 503):
            self.wrong.append(f"answer: {answer.status_code} {answer.text[:300]}")
        if answer.status_code == 503 and "Retry-After" not in answer.headers:
            self.wrong.append("answer: 503 without Retry-After")
        if took > ANSWER_LIMIT:
            self.wrong.append(f"answer: {answer.status_code} after {took:.1f} s")


def _client() -> httpx.Client:
    """A client with a connection for every request, so that all workers get some."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.Client(timeout=ANSWER_LIMIT + 5, verify=False, trust_env=False, limits=limits)  # noqa: S501
