"""Looking after the attempts that run in this process: their leases, and the time they may take."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from flask_async_jobs.errors import StorageUnavailable
from flask_async_jobs.lost_claims import LostClaims
from flask_async_jobs.repository import JobRepository
from flask_async_jobs.slots import Slots
from flask_async_jobs.states import JobError

TIMED_OUT: Final = JobError("Execution timeout", None, "execution-timeout")
TRY_AGAIN: Final = 1.0

_log = logging.getLogger("flask_async_jobs")


class Keeper:
    """Renews the leases of what runs, three times in the life of one, and fails what takes too long.

    At the same times it gives back what lost claims took.
    """

    def __init__(self, repository: JobRepository, slots: Slots, lease: timedelta, lost_claims: LostClaims) -> None:
        self._repository = repository
        self._slots = slots
        self._lease = lease
        self._lost_claims = lost_claims
        self._look = threading.Event()
        self._stopped = False
        self._not_before = 0.0

    def run(self) -> None:
        """Make the passes when they are due, until `stop`."""
        pause = self._lease.total_seconds() / 3
        renewal = time.monotonic() + pause
        while not self._stopped:
            self._look.wait(max(0.0, self._next(renewal) - time.monotonic()))
            self._look.clear()
            self._survive(self.expire_once)
            if time.monotonic() >= renewal:
                self._survive(self.renew_once)
                self._survive(self._lost_claims.give_back_once)
                renewal = time.monotonic() + pause

    def look_again(self) -> None:
        """Take note of a new deadline."""
        self._look.set()

    def stop(self) -> None:
        """Make no further pass."""
        self._stopped = True
        self._look.set()

    def renew_once(self) -> int:
        """Renew the leases of all running jobs in one statement; none when nothing runs."""
        claims = self._slots.claims
        return self._repository.renew(claims, self._lease) if claims else 0

    def expire_once(self) -> int:
        """Fail the jobs of attempts whose time is up, and return how many; their threads go on to their end."""
        overdue = self._slots.past_deadline()
        expired = [claim for claim in overdue if self._repository.expire(claim, TIMED_OUT)]
        for claim in expired:
            self._slots.dealt_with(claim)
            _log.error("job %s (%s): attempt %d takes too long", claim.job_id, claim.type, claim.attempt)
        if len(expired) < len(overdue):  # somebody has a row locked
            self._not_before = time.monotonic() + TRY_AGAIN
        return len(expired)

    def _next(self, renewal: float) -> float:
        """Return when to look: a deadline that has passed already is one whose write failed a moment ago."""
        deadline = self._slots.next_deadline()
        return renewal if deadline is None else min(renewal, max(deadline, self._not_before))

    def _survive(self, one_pass: Callable[[], int]) -> None:
        try:
            one_pass()
        except StorageUnavailable:
            self._not_before = time.monotonic() + TRY_AGAIN
        except Exception:
            self._not_before = time.monotonic() + TRY_AGAIN
            _log.exception("the running jobs could not be looked after; it is tried again")
