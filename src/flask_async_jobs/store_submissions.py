"""Storing submissions, and finding the job that answers one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Executable, Row

from flask_async_jobs.caps import limits_of, locks_of
from flask_async_jobs.records import Cap, NewJob, Stored, view_of
from flask_async_jobs.states import JobView
from flask_async_jobs.store import Store

_inserted: Final = [
    "type",
    "owner",
    "work_key",
    "fingerprint",
    "coalescing_key",
    "idempotency_key",
    "payload",
    "run_at",
]


class SubmissionStore(Store):
    """The part of the job store that submissions need."""

    def insert(self, new: NewJob, caps: Sequence[Cap] = ()) -> JobView | None:
        """Store a submission as a PENDING job.

        Args:
            new: The submission.
            caps: How many jobs may be active; exact, however many submissions there are at once.

        Returns:
            The job, or None if it was refused: the idempotency key is taken, an active job has the coalescing key,
            or a cap is reached. Nothing is stored then.
        """
        parameters = _bound(new)
        if caps:
            rows = self._insert_capped(new, caps, parameters)
        else:
            rows = self.database.run(self.statements.insert, parameters)
        return view_of(rows[0]) if rows else None

    def insert_or_raise(self, new: NewJob) -> JobView:
        """Store a submission, and let the violation of whatever constraint refuses it surface as itself."""
        return view_of(self.database.run(self.statements.insert_or_raise, _bound(new))[0])

    def _insert_capped(self, new: NewJob, caps: Sequence[Cap], parameters: dict[str, Any]) -> Sequence[Row[Any]]:
        """Count and insert under a lock for each scope; always in the same order, so that none waits in a ring."""
        scopes = tuple(cap.scope for cap in caps)
        if scopes not in self._capped:
            self._capped[scopes] = self.statements.capped_insert(caps)
        locks = locks_of(caps, self.schema, new.type, new.owner)
        return self.database.run_locked(locks, self._capped[scopes], {**parameters, **limits_of(caps)})

    def find_by_key(self, owner: str, idempotency_key: str) -> Stored | None:
        """Return the job that this key of this owner created."""
        return self._stored(self.statements.by_key, {"owner_": owner, "key_": idempotency_key})

    def find_fresh(self, work_key: str, window: timedelta) -> Stored | None:
        """Return the newest COMPLETED job of this work that completed less than `window` ago."""
        return self._stored(self.statements.fresh, {"work_": work_key}, {"since_": -window})

    def find_in_flight(self, coalescing_key: str) -> Stored | None:
        """Return the active job that holds this key."""
        return self._stored(self.statements.in_flight, {"key_": coalescing_key})

    def last_completed_at(self, work_key: str) -> datetime | None:
        """Return when this work last completed, or None."""
        instant: datetime | None = self.database.run(self.statements.last_completed, {"work_": work_key})[0][0]
        return instant

    def _stored(
        self, query: Executable, parameters: dict[str, Any], durations: dict[str, timedelta] | None = None
    ) -> Stored | None:
        rows = self.database.run(query, parameters, durations)
        return Stored(view_of(rows[0]), rows[0][-1]) if rows else None


def _bound(new: NewJob) -> dict[str, Any]:
    return {f"{name}_": getattr(new, name) for name in _inserted} | {"id_": new.job_id}
