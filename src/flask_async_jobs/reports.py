"""Writing what attempts report in passing when it is due: one thread for all attempts of an application."""

from __future__ import annotations

import atexit
import heapq
import math
import os
import threading
import time
import weakref
from collections.abc import Collection
from datetime import timedelta
from itertools import count
from typing import Final, Protocol
from uuid import UUID

from flask_async_jobs.log import JobLog

AT_EXIT: Final = 1.0
"""Seconds that a process that ends gives to what is not written yet."""

LINGER: Final = 5.0
"""Seconds without work after which the thread ends."""

MOST_ENDED: Final = 1_000

_all: weakref.WeakSet[Reports] = weakref.WeakSet()


class Kept(Protocol):
    """What somebody has reported and nobody has written yet (see `pending.Pending`)."""

    def write(self) -> None:
        """Write it, as much as goes with one statement."""
        ...

    def flush(self, patience: float, at_most: float) -> None:
        """Let it be written, and wait for that."""
        ...


class Reports:
    """Writes the reports of the attempts of one application when they are due, on one daemon thread.

    The thread starts with the first report and ends when there has been none for a while.

    Args:
        log: Where lines go, and the job store.
        lease: How long a lease lasts after a report.
    """

    def __init__(self, log: JobLog, lease: timedelta) -> None:
        self.log = log
        self.lease = lease
        self._exits = False
        self.after_fork()
        _all.add(self)

    def after_fork(self) -> None:
        """Forget in a child process what belongs to its parent, whose thread writes it."""
        self._changed = threading.Condition()
        self._due: dict[Kept, float] = {}
        self._queue: list[tuple[float, int, Kept]] = []
        self._numbers = count()
        self._writing: Kept | None = None
        self._ended: dict[UUID, None] = {}
        self._lingers = True
        self._thread: threading.Thread | None = None

    def due(self, pending: Kept, when: float) -> bool:
        """Let `pending` write at `when` (as `time.monotonic` counts) or, if it is due earlier, then.

        False: there is no thread for it, because the interpreter is ending.
        """
        with self._changed:
            if when < self._due.get(pending, math.inf):
                self._due[pending] = when
                heapq.heappush(self._queue, (when, next(self._numbers), pending))
                self._changed.notify()
            return self._serve()

    def note_ended(self, job_ids: Collection[UUID]) -> None:
        """Let the next report on these jobs ask the database at once: they were taken from their attempts."""
        with self._changed:
            self._ended.update(dict.fromkeys(job_ids))
            for _ in range(len(self._ended) - MOST_ENDED):
                del self._ended[next(iter(self._ended))]

    def has_ended(self, job_id: UUID) -> bool:
        """Return whether a job was noted to have ended, to the first who asks."""
        if not self._ended:
            return False
        with self._changed:
            return self._ended.pop(job_id, self) is None

    def flush(self, at_most: float = AT_EXIT) -> None:
        """Write everything that is kept, in at most so many seconds, and wait until nothing is being written."""
        deadline = time.monotonic() + at_most
        with self._changed:
            kept = [*self._due, *([self._writing] if self._writing else [])]
        for pending in kept:
            pending.flush(at_most, max(0.0, deadline - time.monotonic()))
        with self._changed:
            self._changed.wait_for(lambda: self._writing is None, max(0.0, deadline - time.monotonic()))

    def stop(self, at_most: float) -> None:
        """Flush, and let the thread end; a later report starts another one."""
        self.flush(at_most)
        with self._changed:
            self._lingers = False
            self._changed.notify_all()

    def _serve(self) -> bool:
        if self._thread is not None and self._thread.is_alive():
            return True
        self._lingers = True
        try:
            self._thread = threading.Thread(target=self._run, name="async-jobs-reports", daemon=True)
            self._thread.start()
        except RuntimeError:
            return False
        if not self._exits:
            self._exits = True
            _flush_at_exit(self)
        return True

    def _run(self) -> None:
        while pending := self._next():
            pending.write()

    def _next(self) -> Kept | None:
        """Wait for what is due and return it, or None when nothing has been for a while."""
        with self._changed:
            self._writing = None
            self._changed.notify_all()
            while True:
                linger = LINGER if self._lingers else 0.0
                when, _, pending = self._queue[0] if self._queue else (time.monotonic() + linger, 0, None)
                left = when - time.monotonic()
                if pending is not None and self._due.get(pending) != when:
                    heapq.heappop(self._queue)  # it was due earlier
                elif pending is not None and left <= 0:
                    heapq.heappop(self._queue)
                    del self._due[pending]
                    self._writing = pending
                    return pending
                elif not self._changed.wait(left) and not self._queue:
                    self._thread = None
                    return None


def _flush_at_exit(reports: Reports) -> None:
    reference = weakref.ref(reports)

    def flush() -> None:
        if (alive := reference()) is not None:
            alive.flush()

    atexit.register(flush)


def _after_fork() -> None:
    for reports in list(_all):
        reports.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
