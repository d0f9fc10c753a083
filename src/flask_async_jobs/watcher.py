"""One watcher in a process reads the state of all that is followed, and tells each subscriber what changed."""

from __future__ import annotations

import logging
import os
import threading
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from flask_async_jobs.errors import StorageUnavailable
from flask_async_jobs.states import BatchView, JobView
from flask_async_jobs.subscriptions import Source, Subscription

SHORTEST_PAUSE: Final = 0.03
"""Seconds between two looks, however often somebody says that something changed."""

_log = logging.getLogger("flask_async_jobs")


class TooManySubscribers(Exception):
    """As many streams follow this job or batch as may."""


class TooManyStreams(Exception):
    """As many streams and waiters are open in this process as may."""


class Watcher:
    """Reads the state of every followed job in one query an interval, and of every followed batch in another.

    Asks nothing while nobody follows any. Holds neither a connection nor a thread for a subscriber. A change in
    this process is looked at without waiting for the interval.

    Args:
        jobs: The job store.
        batches: The store of batches.
        interval: How often to look.
        most: How many subscribers there may be in the process.
        most_of_a_job: How many streams may follow one job or batch.
        pending: How many states may wait for a subscriber before it loses its place.
    """

    def __init__(
        self,
        jobs: Source,
        batches: Source,
        *,
        interval: timedelta,
        most: int,
        most_of_a_job: int,
        pending: int,
    ) -> None:
        self._jobs = jobs
        self._batches = batches
        self._interval = interval.total_seconds()
        self._most = most
        self._most_of_a_job = most_of_a_job
        self._pending = pending
        self._lock = threading.Lock()
        self._followed: dict[tuple[Source, UUID], list[Subscription[Any]]] = {}
        self._open = 0
        self._wanted = threading.Event()
        self._look = threading.Event()
        self._thread: threading.Thread | None = None
        self._thread_of: int | None = None
        self._stopped = False

    def subscribe(self, job_id: UUID, *, stream: bool = False, capped: bool = True) -> Subscription[JobView]:
        """Take a place from which `job_id` is followed.

        Args:
            job_id: The job.
            stream: Whether it is for a stream, of which a job has so many at most.
            capped: Whether the number of places in the process matters.

        Raises:
            TooManySubscribers: As many streams follow this job as may.
            TooManyStreams: As many places are taken in this process as there are.
        """
        return self._subscribe((self._jobs, job_id), stream, capped)

    def subscribe_to_batch(self, batch_id: UUID) -> Subscription[BatchView]:
        """Take a place for a stream that follows a batch; see `subscribe`."""
        return self._subscribe((self._batches, batch_id), stream=True, capped=True)

    def _subscribe(self, followed: tuple[Source, UUID], stream: bool, capped: bool) -> Subscription[Any]:
        with self._lock:
            others = self._followed.get(followed, [])
            if stream and sum(other.is_stream for other in others) >= self._most_of_a_job:
                raise TooManySubscribers
            if capped and self._open >= self._most:
                raise TooManyStreams
            subscription: Subscription[Any] = Subscription(followed, self._pending, self._release, is_stream=stream)
            self._followed[followed] = [*others, subscription]
            self._open += 1
            self._start()
        return subscription

    def changed(self) -> None:
        """Look soon: something has changed. Costs nothing while nobody follows a job."""
        if self._wanted.is_set():
            self._look.set()

    def stop(self) -> None:
        """End every subscription. Waits for nothing."""
        self._stopped = True
        self._wanted.set()
        self._look.set()
        for subscription in self._subscriptions():
            subscription.close()

    def join(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for a look that is under way."""
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(timeout)

    def look_once(self) -> int:
        """Read all followed jobs in one query, all batches in another, tell their subscribers; return how many."""
        return sum(self._look_at(source) for source in (self._jobs, self._batches))

    def _look_at(self, source: Source) -> int:
        with self._lock:
            followed = {id: list(each) for (of, id), each in self._followed.items() if of is source}
        if not followed:
            return 0
        found = source.find_all(list(followed))
        for id, subscriptions in followed.items():
            for subscription in subscriptions:
                subscription.offer(found.get(id))
        return len(followed)

    def _subscriptions(self) -> list[Subscription[Any]]:
        with self._lock:
            return [subscription for each in self._followed.values() for subscription in each]

    def _release(self, subscription: Subscription[Any]) -> None:
        with self._lock:
            others = self._followed.get(subscription.followed, [])
            if subscription not in others:
                return
            left = [each for each in others if each is not subscription]
            self._open -= 1
            if left:
                self._followed[subscription.followed] = left
            else:
                del self._followed[subscription.followed]
                if not self._followed:
                    self._wanted.clear()

    def _start(self) -> None:
        self._wanted.set()
        if self._thread_of != os.getpid():
            self._thread_of = os.getpid()
            self._stopped = False
            self._thread = threading.Thread(target=self._watch, name="async-jobs-watcher", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        pause = threading.Event()
        while True:
            self._wanted.wait()
            self._look.wait(self._interval)
            self._look.clear()
            if self._stopped:
                break
            try:
                self.look_once()
            except StorageUnavailable:
                pass  # told once by the database; the streams go on, and no end is made up
            except Exception:
                _log.exception("the followed jobs could not be read; it is tried again")
            pause.wait(SHORTEST_PAUSE)
        self._thread_of = None
