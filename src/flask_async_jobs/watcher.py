"""One watcher in a process reads the state of all followed jobs, and tells each subscriber what changed."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Final
from uuid import UUID

from flask_async_jobs.errors import StorageUnavailable
from flask_async_jobs.repository import JobRepository
from flask_async_jobs.states import JobView

SHORTEST_PAUSE: Final = 0.05
"""Seconds between two looks, however often somebody says that something changed."""

STOP_TIMEOUT: Final = 1.0

_log = logging.getLogger("flask_async_jobs")


class TooManySubscribers(Exception):
    """As many streams follow this job as may."""


class TooManyStreams(Exception):
    """As many streams and waiters are open in this process as may."""


class Subscription:
    """A place from which one job is followed. States that nobody takes wait in a bounded queue."""

    def __init__(
        self, job_id: UUID, limit: int, release: Callable[[Subscription], None], *, is_stream: bool = False
    ) -> None:
        self.job_id = job_id
        self.is_stream = is_stream
        self._limit = limit
        self._release = release
        self._changed = threading.Condition()
        self._states: deque[JobView] = deque()
        self._last: JobView | None = None
        self.is_over = False
        """Whether nothing more will come: the place was lost or given back, or the row is gone."""

    def begin(self, job: JobView) -> None:
        """Take `job` as known, so that only what differs from it is told."""
        with self._changed:
            self._last = job
            self._states = deque(state for state in self._states if state.revision > job.revision)

    def offer(self, job: JobView | None) -> None:
        """Tell the state as it was read; None: the row is gone."""
        with self._changed:
            if job is None:
                self.is_over = True
            elif job != self._last:
                self._last = job
                self._states.append(job)
                self.is_over = len(self._states) > self._limit
            self._changed.notify_all()

    def next(self, timeout: float) -> JobView | None:
        """Return the next state, or None if none comes within `timeout` seconds or nothing more will."""
        with self._changed:
            self._changed.wait_for(lambda: self._states or self.is_over, timeout)
            return self._states.popleft() if self._states and not self.is_over else None

    def close(self) -> None:
        """Give the place back; once is enough."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()
        self._release(self)


class Watcher:
    """Reads the state of every followed job in one query an interval; none while nobody follows one.

    Holds neither a connection nor a thread for a subscriber. A change in this process is looked at without waiting
    for the interval.

    Args:
        repository: The job store.
        interval: How often to look.
        most: How many subscribers there may be in the process.
        most_of_a_job: How many streams may follow one job.
        pending: How many states may wait for a subscriber before it loses its place.
    """

    def __init__(
        self, repository: JobRepository, *, interval: timedelta, most: int, most_of_a_job: int, pending: int
    ) -> None:
        self._repository = repository
        self._interval = interval.total_seconds()
        self._most = most
        self._most_of_a_job = most_of_a_job
        self._pending = pending
        self._lock = threading.Lock()
        self._followed: dict[UUID, list[Subscription]] = {}
        self._open = 0
        self._wanted = threading.Event()
        self._look = threading.Event()
        self._thread: threading.Thread | None = None
        self._thread_of: int | None = None
        self._stopped = False

    def subscribe(self, job_id: UUID, *, stream: bool = False, capped: bool = True) -> Subscription:
        """Take a place from which `job_id` is followed.

        Args:
            job_id: The job.
            stream: Whether it is for a stream, of which a job has so many at most.
            capped: Whether the number of places in the process matters.

        Raises:
            TooManySubscribers: As many streams follow this job as may.
            TooManyStreams: As many places are taken in this process as there are.
        """
        with self._lock:
            others = self._followed.get(job_id, [])
            if stream and sum(other.is_stream for other in others) >= self._most_of_a_job:
                raise TooManySubscribers
            if capped and self._open >= self._most:
                raise TooManyStreams
            subscription = Subscription(job_id, self._pending, self._release, is_stream=stream)
            self._followed[job_id] = [*others, subscription]
            self._open += 1
            self._start()
        return subscription

    def changed(self) -> None:
        """Look soon: something has changed. Costs nothing while nobody follows a job."""
        if self._wanted.is_set():
            self._look.set()

    def stop(self) -> None:
        """End every subscription, and give a look that is under way a second to end."""
        self._stopped = True
        self._wanted.set()
        self._look.set()
        for subscription in self._subscriptions():
            subscription.close()
        thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            thread.join(STOP_TIMEOUT)

    def look_once(self) -> int:
        """Read all followed jobs in one query, tell their subscribers, and return how many jobs were read."""
        with self._lock:
            followed = {job_id: list(each) for job_id, each in self._followed.items()}
        if not followed:
            return 0
        found = self._repository.find_all(list(followed))
        for job_id, subscriptions in followed.items():
            for subscription in subscriptions:
                subscription.offer(found.get(job_id))
        return len(followed)

    def _subscriptions(self) -> list[Subscription]:
        with self._lock:
            return [subscription for each in self._followed.values() for subscription in each]

    def _release(self, subscription: Subscription) -> None:
        with self._lock:
            others = self._followed.get(subscription.job_id, [])
            if subscription not in others:
                return
            left = [each for each in others if each is not subscription]
            self._open -= 1
            if left:
                self._followed[subscription.job_id] = left
            else:
                del self._followed[subscription.job_id]
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
