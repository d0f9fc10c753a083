"""Claiming jobs and handing them to threads: a slot is taken first, then a row is claimed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, thread
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from flask_async_jobs.errors import StorageUnavailable
from flask_async_jobs.records import Claim, TypeRules
from flask_async_jobs.repository import JobRepository

_log = logging.getLogger("flask_async_jobs")


class Dispatcher(Protocol):
    """Runs the jobs of one process. An application may pass its own as `dispatcher=`."""

    def start(self) -> None:
        """Begin to claim and run jobs. Called once in each process that serves or works."""
        ...

    def wake(self) -> None:
        """Look for due jobs now. May be called from any thread; returns at once."""
        ...

    def stop(self, timeout: timedelta) -> bool:
        """Claim no more, give running handlers `timeout`, and return whether all of them ended."""
        ...

    @property
    def running(self) -> Collection[UUID]:
        """The execution tokens of the attempts that run in this process."""
        ...


class Slots:
    """The places for running handlers, and what runs in them. A place is given back on every path."""

    def __init__(self, limit: int) -> None:
        self._free = threading.BoundedSemaphore(limit)
        self._limit = limit
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._claims: dict[UUID, Claim] = {}

    def take(self) -> int:
        """Take every place that is free and return how many."""
        taken = 0
        while taken < self._limit and self._free.acquire(blocking=False):
            taken += 1
        return taken

    def give_back(self, count: int) -> None:
        """Free places that were taken and not filled."""
        if count:
            self._free.release(count)

    def fill(self, claim: Claim) -> None:
        """Note what runs in a place that was taken."""
        with self._lock:
            self._claims[claim.execution_token] = claim

    def clear(self, claim: Claim) -> None:
        """Free the place of an attempt that ended."""
        with self._lock:
            del self._claims[claim.execution_token]
            self._idle.notify_all()
        self._free.release()

    @property
    def claims(self) -> list[Claim]:
        """What runs at the moment."""
        with self._lock:
            return list(self._claims.values())

    def wait_until_idle(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until nothing runs; return whether that is so."""
        with self._idle:
            return self._idle.wait_for(lambda: not self._claims, timeout)


class ThreadDispatcher:
    """Runs jobs on a bounded pool of daemon threads, fed by one thread that claims.

    Args:
        repository: The job store.
        rules: The types to claim.
        run: Runs one claimed job and records its outcome; raises nothing.
        limit: How many handlers run at once.
        poll_interval: How often to look for jobs that nobody announced.
        lease: How long a claim lasts; renewed three times in that time.
    """

    def __init__(
        self,
        repository: JobRepository,
        rules: Callable[[], Sequence[TypeRules]],
        run: Callable[[Claim], None],
        *,
        limit: int,
        poll_interval: timedelta,
        lease: timedelta,
    ) -> None:
        self._repository = repository
        self._rules = rules
        self._run = run
        self._poll_interval = poll_interval.total_seconds()
        self._lease = lease
        self._slots = Slots(limit)
        self._pool = ThreadPoolExecutor(limit, thread_name_prefix="async-jobs-worker")
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._drained = threading.Event()
        self._more = False
        self._ended = False
        self._threads = [
            threading.Thread(target=self._claim_jobs, name="async-jobs-claims", daemon=True),
            threading.Thread(target=self._renew_leases, name="async-jobs-leases", daemon=True),
        ]

    def start(self) -> None:
        """Begin to claim and run jobs."""
        for each in self._threads:
            each.start()

    def wake(self) -> None:
        """Look for due jobs now."""
        self._woken.set()

    @property
    def running(self) -> Collection[UUID]:
        """The execution tokens of the attempts that run in this process."""
        return [claim.execution_token for claim in self._slots.claims]

    def stop(self, timeout: timedelta) -> bool:
        """Claim no more and wait at most `timeout` for running handlers; what still runs is left to recovery."""
        deadline = time.monotonic() + timeout.total_seconds()
        self._stopping.set()
        self._woken.set()
        if self._threads[0].is_alive():
            self._threads[0].join(max(0.0, deadline - time.monotonic()))
        finished = self._slots.wait_until_idle(max(0.0, deadline - time.monotonic()))
        self._drained.set()
        self._pool.shutdown(wait=False)
        if not finished:
            _log.warning("%d handlers still run; their jobs are left to recovery", len(self._slots.claims))
        return finished

    # Claims

    def _claim_jobs(self) -> None:
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                self.claim_once()
            except StorageUnavailable:
                self._more = False
            except Exception:
                _log.exception("the claim failed; it is tried again")
                self._more = False
            self._woken.wait(self._poll_interval)

    def claim_once(self) -> int:
        """Claim as many jobs as there are free slots, hand them to the pool, and return how many."""
        self._ended = False
        free = self._slots.take()
        claims: list[Claim] = []
        try:
            rules = self._rules()
            if free and rules and not self._stopping.is_set():
                claims = self._repository.claim(rules, free, self._lease)
        finally:
            self._slots.give_back(free - len(claims))
        # When every slot is full more jobs may wait, and the next slot that comes free looks for them. One may have
        # come free while the claim ran, and found that flag still down.
        self._more = len(claims) == free
        if self._more and self._ended:
            self._woken.set()
        for claim in claims:
            self._slots.fill(claim)
            self._hand_over(claim)
        return len(claims)

    def _hand_over(self, claim: Claim) -> None:
        try:
            future = self._pool.submit(self._run, claim)
        except RuntimeError:  # the interpreter is ending and starts no thread any more
            self._slots.clear(claim)
            self._repository.release(claim.job_id, claim.execution_token)
            return
        _leave_unjoined()
        future.add_done_callback(lambda done: self._finished(claim, done))

    def _finished(self, claim: Claim, done: Future[None]) -> None:
        self._slots.clear(claim)
        self._ended = True
        if self._more:
            self._woken.set()
        if (error := done.exception()) is not None:
            _log.error("job %s: its thread failed", claim.job_id, exc_info=error)

    # Leases

    def _renew_leases(self) -> None:
        while not self._drained.wait(self._lease.total_seconds() / 3):
            try:
                self.renew_once()
            except StorageUnavailable:
                continue
            except Exception:
                _log.exception("the leases could not be renewed; it is tried again")

    def renew_once(self) -> int:
        """Renew the leases of all running jobs in one statement; none when nothing runs."""
        claims = self._slots.claims
        return self._repository.renew(claims, self._lease) if claims else 0


def _leave_unjoined() -> None:
    """Keep the interpreter from joining the pool's threads at exit, which an endless handler would prevent.

    The threads are daemons because the thread that starts them is one.
    """
    joined: MutableMapping[threading.Thread, object] = thread._threads_queues  # type: ignore[assignment]
    for worker in list(joined):
        if worker.name.startswith("async-jobs-worker"):
            joined.pop(worker, None)
