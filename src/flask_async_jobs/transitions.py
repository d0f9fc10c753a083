"""What every transition has in common: what it writes always, whom it asks, and which rows it leaves alone.

A state is written into the statement, not bound to it: a prepared statement could not use a partial index
otherwise. Bound names end in `_`, so that none is taken for a column.

A plan must not depend on statistics, which are missing or wrong whenever a queue has just filled. So a condition
that no index is meant for is hidden from the planner's estimates (`checked`), and so are limits (`limit`) and the
number of rows of a sub-query (`_is_one_of`). What remains is the primary key, or the index in the wanted order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    CTE,
    ColumnElement,
    Integer,
    Select,
    Table,
    and_,
    bindparam,
    case,
    false,
    func,
    literal_column,
    null,
    select,
    true,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate, Update

from flask_async_jobs.database import Database
from flask_async_jobs.records import Cap, view_columns

PENDING: Final[ColumnElement[str]] = literal_column("'PENDING'")
PROCESSING: Final[ColumnElement[str]] = literal_column("'PROCESSING'")
COMPLETED: Final[ColumnElement[str]] = literal_column("'COMPLETED'")
FAILED: Final[ColumnElement[str]] = literal_column("'FAILED'")
CANCELLED: Final[ColumnElement[str]] = literal_column("'CANCELLED'")


def checked(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the conditions as one that the planner seeks in no index, and takes for true of every other row."""
    return func.coalesce(and_(*conditions), false())


def limit(name: str) -> ColumnElement[int]:
    """Return a limit whose value the planner does not see, so that it plans for the first rows."""
    return select(bindparam(name, type_=Integer())).scalar_subquery()


class Transitions:
    """The common parts of the statements on one `async_jobs` table."""

    def __init__(self, database: Database, jobs: Table) -> None:
        self._database = database
        self._jobs = jobs
        self._columns = jobs.c
        self.view = view_columns(jobs)
        self.has_id = database.one_of(jobs.c.id, "ids_")

    def _write(self, *where: ColumnElement[bool], **values: Any) -> Update:
        """Return the transition of one row; `last_updated_at` never goes back."""
        return self._writing(**values).where(self.has_id, *where)

    def _writing(self, **values: Any) -> Update:
        jobs, database = self._columns, self._database
        return update(self._jobs).values(
            last_updated_at=database.later(jobs.last_updated_at, database.now),
            revision=jobs.revision + 1,
            **values,
        )

    def _owned(self, *, fenced: bool) -> list[ColumnElement[bool]]:
        where = [checked(self._columns.status == PROCESSING)]
        if fenced:
            where.append(self._database.one_of(self._columns.execution_token, "tokens_"))
        return where

    def _report(self, **values: Any) -> dict[bool, ReturningUpdate[Any]]:
        """Return a write of the running attempt: fenced by its token (True), or of whichever runs (False)."""
        return {
            fenced: self._write(*self._owned(fenced=fenced), **values).returning(self._columns.last_updated_at)
            for fenced in (True, False)
        }

    def _unlocked_report(self, **values: Any) -> dict[bool, ReturningUpdate[Any]]:
        """Return a report like `_report` that leaves the row alone while somebody has it locked."""
        return {
            fenced: self._writing(**values)
            .where(self._is_one_of(self._own(fenced=fenced)), *self._owned(fenced=fenced))
            .returning(self._columns.last_updated_at)
            for fenced in (True, False)
        }

    def _own(self, *, fenced: bool) -> CTE:
        """Return the row of the running attempt, locked, unless somebody else has it locked."""
        return self._locked(select(self._columns.id).where(self.has_id, *self._owned(fenced=fenced)))

    def _ended(self, status: ColumnElement[str]) -> dict[str, Any]:
        ended = self._database.later(self._columns.last_updated_at, self._database.now)
        return {
            "status": status,
            "completed_at": ended,
            "execution_token": null(),
            "lease_expires_at": null(),
        }

    def _unclaimed(self) -> dict[str, Any]:
        return {
            "status": PENDING,
            "execution_token": null(),
            "lease_expires_at": null(),
            "percent_complete": null(),
        }

    def _renewed(self) -> ColumnElement[Any]:
        """Return the lease after a report, which renews it if there is one."""
        lease = self._columns.lease_expires_at
        return case((lease.is_not(None), self._database.after("lease_")), else_=null())

    def room(self, caps: Sequence[Cap], more: ColumnElement[int]) -> list[ColumnElement[bool]]:
        """Return the conditions that `more` jobs can become active below each cap."""
        return [
            self._active(PENDING, cap, "available_at", "created_at")
            + self._active(PROCESSING, cap, "started_at")
            + more
            <= bindparam(f"most_{cap.scope}_")
            for cap in caps
        ]

    def _active(self, status: ColumnElement[str], cap: Cap, *order: str) -> ColumnElement[int]:
        """Return how many jobs of one state there are, along its index, and no further than the cap."""
        jobs = self._columns
        scopes = {
            "type": checked(jobs.type == bindparam("type_")),
            "owner": checked(jobs.owner == bindparam("owner_")),
            "total": true(),
        }
        rows = (
            select(jobs.id)
            .where(jobs.status == status, scopes[cap.scope])
            .order_by(*(jobs[each] for each in order))
        )
        first = rows.limit(limit(f"most_{cap.scope}_")).subquery()
        return select(func.count()).select_from(first).scalar_subquery()

    @staticmethod
    def _locked(rows: Select[Any]) -> CTE:
        """Return `rows` locked, without those that somebody else has locked (SQLite locks as a whole)."""
        return rows.with_for_update(skip_locked=True).cte("locked")

    def _is_one_of(self, rows: CTE, identifier: ColumnElement[Any] | None = None) -> ColumnElement[bool]:
        """Return the condition that a row is one of `rows`: an array of keys on PostgreSQL, which nothing joins."""
        own = self._columns.id if identifier is None else identifier
        if self._database.is_sqlite:
            return own.in_(select(rows.c.id))
        return own == func.any(func.array(select(rows.c.id).scalar_subquery()))
