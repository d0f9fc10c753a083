"""The rules of the job store: what each transition requires, and what it writes.

Each statement is built once for a repository; what they have in common stands in `transitions`, the recurring
passes in `upkeep`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    String,
    Table,
    and_,
    bindparam,
    case,
    cast,
    delete,
    func,
    literal_column,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningUpdate

from flask_async_jobs.column_types import Instant
from flask_async_jobs.database import Database
from flask_async_jobs.expressions import marked_identifier
from flask_async_jobs.records import Cap
from flask_async_jobs.states import JobStatus
from flask_async_jobs.transitions import CANCELLED, COMPLETED, FAILED, PENDING, PROCESSING, checked, limit
from flask_async_jobs.upkeep import Upkeep

LARGEST: Final = 2**31 - 1
"""What an INTEGER holds: a row that was set to it by hand must not make a claim of many rows fail."""


class Statements(Upkeep):
    """The statements on one `async_jobs` table."""

    def __init__(self, database: Database, jobs: Table, log: Table) -> None:
        super().__init__(database, jobs)
        self.insert = self._insert()
        self.insert_or_raise = self._insert(surfacing=True)
        self.by_key = self._stored(
            jobs.c.owner == bindparam("owner_"),
            jobs.c.idempotency_key == bindparam("key_"),
        )
        self.in_flight = self._stored(
            jobs.c.coalescing_key == bindparam("key_"), jobs.c.status.in_([PENDING, PROCESSING])
        )
        self.fresh = (
            self._stored(
                jobs.c.work_key == bindparam("work_"),
                jobs.c.status == COMPLETED,
                jobs.c.completed_at > database.after("since_"),
            )
            .order_by(jobs.c.completed_at.desc())
            .limit(1)
        )
        self.last_completed = select(func.max(jobs.c.completed_at, type_=Instant())).where(
            jobs.c.work_key == bindparam("work_"), jobs.c.status == COMPLETED
        )
        self.by_id = select(*self.view).where(self.has_id)
        self.by_id_and_owner = self.by_id.where(jobs.c.owner == bindparam("owner_"))
        self.result = select(jobs.c.result).where(self.has_id)
        self.running = {
            fenced: select(jobs.c.id).where(self.has_id, *self._owned(fenced=fenced)) for fenced in (True, False)
        }
        self.claim = self._claim()
        self.give_back = self._give_back()
        self.renew = self._renew()
        self.retry = self._write(
            *self._owned(fenced=True),
            **self._unclaimed(),
            attempt=jobs.c.attempt - bindparam("uncounted_", type_=Integer()),
            available_at=database.after("delay_"),
        ).returning(jobs.c.id)
        done = {"percent_complete": bindparam("percent_"), "lease_expires_at": self._renewed()}
        self.progress = self._unlocked_report(**done)
        self.effect_started = self._report(effect_started_at=func.coalesce(jobs.c.effect_started_at, database.now))
        self.complete = self._report(
            **self._ended(COMPLETED), percent_complete=literal_column("100"), result=bindparam("result_")
        )
        self.complete_all = self._complete_all()
        failed = self._ended(FAILED) | {
            f"error_{name}": bindparam(f"{name}_") for name in ("title", "detail", "code")
        }
        self.fail = self._report(**failed)
        self.expire = self._unlocked_report(**failed)[True]
        self.purge = self.removal()
        self.remove_lines = delete(log).where(database.one_of(log.c.job_id, "ids_"))
        self.cancel = self._write(jobs.c.status.in_([PENDING, PROCESSING]), **self._ended(CANCELLED)).returning(
            *self.view
        )
        self.cancel_owned = self.cancel.where(jobs.c.owner == bindparam("owner_"))

    def listing(self, type: str | None, status: str | None, after: UUID | None) -> Select[Any]:
        """Return the query for jobs, the newest first, that come after the job `after`."""
        jobs = self._columns
        query = select(*self.view).order_by(jobs.created_at.desc(), jobs.id.desc()).limit(bindparam("most_"))
        if type is not None:
            query = query.where(jobs.type == bindparam("type_"))
        if status is not None:
            query = query.where(jobs.status == literal_column(f"'{JobStatus(status)}'"))
        if after is not None:
            last = select(jobs.created_at, jobs.id).where(self.has_id).subquery()
            older = or_(
                jobs.created_at < last.c.created_at,
                and_(jobs.created_at == last.c.created_at, jobs.id < last.c.id),
            )
            query = query.join_from(self._jobs, last, older)
        return query

    def counts(self) -> Select[Any]:
        """Return the query for how many jobs there are of each type and status, and the oldest of them."""
        jobs = self._columns
        return (
            select(
                jobs.type, jobs.status, func.count(), func.min(jobs.created_at, type_=Instant()), self._database.now
            )
            .group_by(jobs.type, jobs.status)
            .order_by(jobs.type, jobs.status)
        )

    def capped_insert(self, caps: Sequence[Cap]) -> Any:
        """Return the insert that stores nothing when as many jobs are active as a cap allows."""
        return self._insert(*self.room(caps, literal_column("1")))

    def _insert(self, *where: ColumnElement[bool], surfacing: bool = False) -> Any:
        columns = ["id", "type", "owner", "work_key", "fingerprint", "coalescing_key", "idempotency_key", "payload"]
        now = self._database.now
        values: dict[str, Any] = {name: bindparam(f"{name}_", type_=self._columns[name].type) for name in columns}
        values["status"] = PENDING
        values["created_at"] = values["last_updated_at"] = now
        values["available_at"] = func.coalesce(bindparam("run_at_", type_=Instant()), now)
        insert = (sqlite if self._database.is_sqlite else postgresql).insert(self._jobs)
        stored = (
            insert.from_select(list(values), select(*values.values()).where(*where))
            if where
            else insert.values(**values)
        )
        return (stored if surfacing else stored.on_conflict_do_nothing()).returning(*self.view)

    def _stored(self, *where: ColumnElement[bool]) -> Select[Any]:
        return select(*self.view, self._columns.fingerprint).where(*where)

    # Claims and leases

    def _claim(self) -> ReturningUpdate[Any]:
        jobs, database = self._columns, self._database
        due = self._locked(
            select(jobs.id)
            .where(
                jobs.status == PENDING,
                jobs.available_at <= database.now,
                checked(
                    jobs.type.in_(bindparam("types_", expanding=True)),
                    jobs.attempt < LARGEST,
                    jobs.revision < LARGEST,
                ),
            )
            .order_by(jobs.available_at, jobs.created_at)
            .limit(limit("most_"))
        )
        return (
            self._writing(
                status=PROCESSING,
                execution_token=marked_identifier(bindparam("mark_", type_=String())),
                attempt=jobs.attempt + 1,
                started_at=database.later(jobs.created_at, database.now),
                lease_expires_at=case(
                    (jobs.type.in_(bindparam("detached_", expanding=True)), null()),
                    else_=database.after("lease_"),
                ),
            )
            .where(self._is_one_of(due))
            .returning(
                *(
                    jobs.id,
                    jobs.type,
                    jobs.owner,
                    jobs.attempt,
                    jobs.execution_token,
                    jobs.payload,
                    jobs.work_key,
                ),
                cast(jobs.available_at, String).label("available"),
                cast(jobs.created_at, String).label("created"),
            )
        )

    def _renew(self) -> ReturningUpdate[Any]:
        jobs, database = self._columns, self._database
        running = self._own(fenced=True)
        return (
            update(self._jobs)
            .values(lease_expires_at=database.after("lease_"))
            .where(
                self._is_one_of(running),
                jobs.lease_expires_at.is_not(None),
                *self._owned(fenced=True),
            )
            .returning(jobs.id)
        )

    def _complete_all(self) -> ReturningUpdate[Any]:
        """Return the completion of several attempts at once."""
        jobs = self._columns
        running = self._own(fenced=True)
        return (
            self._writing(**self._ended(COMPLETED), percent_complete=literal_column("100"))
            .where(self._is_one_of(running), *self._owned(fenced=True))
            .returning(jobs.id)
        )
