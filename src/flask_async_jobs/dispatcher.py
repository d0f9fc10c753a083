"""Claiming jobs and handing them to threads: a slot is taken first, then a row is claimed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, MutableMapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, thread
from datetime import timedelta
from typing import Protocol, runtime_checkable
from uuid import UUID

from flask_async_jobs.errors import StorageUnavailable
from flask_async_jobs.keeper import Keeper
from flask_async_jobs.lost_claims import LostClaims
from flask_async_jobs.records import Claim, TypeRules
from flask_async_jobs.repository import JobRepository
from flask_async_jobs.slots import Slots

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


@runtime_checkable
class Bounded(Protocol):
    """What a dispatcher has on which `BACKPRESSURE` can act."""

    @property
    def is_full(self) -> bool:
        """Whether a handler runs in every slot."""
        ...

    @property
    def overdue(self) -> Collection[UUID]:
        """The attempts whose jobs have timed out while their threads still run."""
        ...

    def wait_until_taken(self, job_id: UUID, timeout: timedelta) -> bool:
        """Wait at most `timeout` until a slot takes this job, or is free for it."""
        ...


class ThreadDispatcher:
    """Runs jobs on a bounded pool of daemon threads, fed by one thread that claims.

    Args:
        repository: The job store.
        rules: The types to claim.
        run: Runs one claimed job and records its outcome; raises nothing.
        limit: How many handlers run at once.
        poll_interval: How often to look for jobs that nobody announced.
        lease: How long a claim lasts; renewed three times in that time.

    Attributes:
        keeper: What renews the leases and ends what takes too long.
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
        self._lost_claims = LostClaims(repository, self.wake)
        self.keeper = Keeper(repository, self._slots, lease, self._lost_claims)
        self._pool = ThreadPoolExecutor(limit, thread_name_prefix="async-jobs-worker")
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._more = False
        self._ended = False
        self._threads = [
            threading.Thread(target=self._claim_jobs, name="async-jobs-claims", daemon=True),
            threading.Thread(target=self.keeper.run, name="async-jobs-leases", daemon=True),
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

    @property
    def is_full(self) -> bool:
        """Whether a handler runs in every slot."""
        return self._slots.are_full

    def wait_until_taken(self, job_id: UUID, timeout: timedelta) -> bool:
        """Wait at most `timeout` until a slot takes this job, or is free for it."""
        return self._slots.wait_until_taken(job_id, timeout.total_seconds())

    @property
    def overdue(self) -> Collection[UUID]:
        """The attempts whose jobs have timed out while their threads still run."""
        return self._slots.overdue

    def stop(self, timeout: timedelta) -> bool:
        """Claim no more and wait at most `timeout` for running handlers; what still runs is left to recovery."""
        deadline = time.monotonic() + timeout.total_seconds()
        self._stopping.set()
        self._woken.set()
        if self._threads[0].is_alive():
            self._threads[0].join(max(0.0, deadline - time.monotonic()))
        finished = self._slots.wait_until_idle(max(0.0, deadline - time.monotonic()))
        self.keeper.stop()
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
        rules = self._rules()
        free = self._slots.take()
        claims: list[Claim] = []
        try:
            if free and rules and not self._stopping.is_set():
                with self._lost_claims.watched() as mark:
                    claims = self._repository.claim(rules, free, self._lease, mark)
        finally:
            self._slots.give_back(free - len(claims))
        # When every slot is full more jobs may wait, and the next slot that comes free looks for them. One may have
        # come free while the claim ran, and found that flag still down.
        self._more = len(claims) == free
        if self._more and self._ended:
            self._woken.set()
        timeouts = {rule.type: rule.timeout for rule in rules}
        for claim in claims:
            self._slots.fill(claim, timeouts[claim.type])
            if timeouts[claim.type] is not None:
                self.keeper.look_again()
            self._hand_over(claim)
        return len(claims)

    def _hand_over(self, claim: Claim) -> None:
        given_up = threading.Event()
        try:
            future = self._pool.submit(self._run_unless, given_up, claim)
        except RuntimeError:  # the interpreter is ending, or no thread can be started: the pool may have it queued
            given_up.set()
            self._slots.clear(claim)
            try:
                self._repository.retry(claim.job_id, claim.execution_token, timedelta(0), counted=False)
            except StorageUnavailable:
                _log.error("job %s: no thread can be started for it, and it is left to recovery", claim.job_id)
            return
        _leave_unjoined()
        future.add_done_callback(lambda done: self._finished(claim, done))

    def _run_unless(self, given_up: threading.Event, claim: Claim) -> None:
        if not given_up.is_set():
            self._run(claim)

    def _finished(self, claim: Claim, done: Future[None]) -> None:
        self._slots.clear(claim)
        self._ended = True
        if self._more:
            self._woken.set()
        if (error := done.exception()) is not None:
            _log.error("job %s: its thread failed", claim.job_id, exc_info=error)


def _leave_unjoined() -> None:
    """Keep the interpreter from joining the pool's threads at exit, which an endless handler would prevent.

    The threads are daemons because the thread that starts them is one.
    """
    joined: MutableMapping[threading.Thread, object] = thread._threads_queues  # type: ignore[assignment]
    for worker in list(joined):
        if worker.name.startswith("async-jobs-worker"):
            joined.pop(worker, None)
