"""The places for running handlers, and what runs in them."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from datetime import timedelta
from uuid import UUID

from flask_async_jobs.records import Claim


class Slots:
    """The places for running handlers. A place is taken before a row is claimed, and given back on every path."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = threading.BoundedSemaphore(limit)
        self._changed = threading.Condition()
        self._claims: dict[UUID, Claim] = {}
        self._deadlines: dict[UUID, float] = {}
        self._overdue: set[UUID] = set()

    def take(self) -> int:
        """Take every place that is free and return how many."""
        taken = 0
        while taken < self.limit and self._free.acquire(blocking=False):
            taken += 1
        return taken

    def give_back(self, count: int) -> None:
        """Free places that were taken and not filled."""
        if count:
            self._free.release(count)

    def fill(self, claim: Claim, timeout: timedelta | None = None) -> None:
        """Note what runs in a place that was taken, and for how long it may."""
        with self._changed:
            self._claims[claim.execution_token] = claim
            if timeout is not None:
                self._deadlines[claim.execution_token] = time.monotonic() + timeout.total_seconds()
            self._changed.notify_all()

    def clear(self, claim: Claim) -> None:
        """Free the place of an attempt that ended."""
        with self._changed:
            del self._claims[claim.execution_token]
            self._deadlines.pop(claim.execution_token, None)
            self._overdue.discard(claim.execution_token)
            self._changed.notify_all()
        self._free.release()

    @property
    def claims(self) -> list[Claim]:
        """What runs at the moment."""
        with self._changed:
            return list(self._claims.values())

    @property
    def are_full(self) -> bool:
        """Whether a handler runs in every place."""
        return len(self._claims) >= self.limit

    def wait_until_idle(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds until nothing runs; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._claims, timeout)

    def wait_until_taken(self, job_id: UUID, timeout: float) -> bool:
        """Wait at most `timeout` seconds until this job has a place, or one is free that it may get."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self.are_full or any(claim.job_id == job_id for claim in self._claims.values()), timeout
            )

    # Timeouts

    def next_deadline(self) -> float | None:
        """Return when the next attempt has to have ended, as `time.monotonic` counts."""
        with self._changed:
            return min(self._deadlines.values(), default=None)

    def past_deadline(self) -> list[Claim]:
        """Return the attempts whose time is up and that were not dealt with yet."""
        now = time.monotonic()
        with self._changed:
            return [self._claims[token] for token, deadline in self._deadlines.items() if deadline <= now]

    def dealt_with(self, claim: Claim) -> None:
        """Note that the job of an attempt has timed out; its thread may still run."""
        with self._changed:
            if self._deadlines.pop(claim.execution_token, None) is not None:
                self._overdue.add(claim.execution_token)

    @property
    def overdue(self) -> Collection[UUID]:
        """The attempts whose jobs have timed out while their threads still run."""
        with self._changed:
            return set(self._overdue)
