"""The rules of the job store: what each transition requires, and what it writes.

Each statement is built once for a repository. A state is written into the statement, not bound to it: a prepared
statement could not use a partial index otherwise. Bound names end in `_`, so that none is taken for a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    CTE,
    ColumnElement,
    Integer,
    Select,
    String,
    Table,
    and_,
    bindparam,
    case,
    delete,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import ReturningUpdate, Update

from flask_async_jobs.database import Database
from flask_async_jobs.expressions import random_identifier
from flask_async_jobs.models import Instant
from flask_async_jobs.records import Cap, TypeRules, names, view_columns
from flask_async_jobs.states import JobStatus

PENDING: Final[ColumnElement[str]] = literal_column("'PENDING'")
PROCESSING: Final[ColumnElement[str]] = literal_column("'PROCESSING'")
COMPLETED: Final[ColumnElement[str]] = literal_column("'COMPLETED'")
FAILED: Final[ColumnElement[str]] = literal_column("'FAILED'")
CANCELLED: Final[ColumnElement[str]] = literal_column("'CANCELLED'")


class Statements:
    """The statements on one `async_jobs` table."""

    def __init__(self, database: Database, jobs: Table) -> None:
        self._database = database
        self._jobs = jobs
        self._columns = jobs.c
        self.view = view_columns(jobs)
        self.has_id = database.one_of(jobs.c.id, "ids_")
        self.insert = self._insert()
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
        self.running = select(jobs.c.id).where(self.has_id, *self._owned(fenced=True))
        self.claim = self._claim()
        self.renew = self._renew()
        self.retry = self._write(
            *self._owned(fenced=True),
            **self._unclaimed(),
            attempt=jobs.c.attempt - bindparam("uncounted_", type_=Integer()),
            available_at=database.after("delay_"),
        ).returning(jobs.c.id)
        self.progress = self._report(
            percent_complete=bindparam("percent_"),
            lease_expires_at=case((jobs.c.lease_expires_at.is_not(None), database.after("lease_")), else_=null()),
        )
        self.effect_started = self._report(effect_started_at=func.coalesce(jobs.c.effect_started_at, database.now))
        self.complete = self._report(
            **self._ended(COMPLETED), percent_complete=literal_column("100"), result=bindparam("result_")
        )
        self.complete_all = self._complete_all()
        self.fail = self._report(
            **self._ended(FAILED),
            error_title=bindparam("title_"),
            error_detail=bindparam("detail_"),
            error_code=bindparam("code_"),
        )
        self.purge = self._purge()
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
        active = self._columns.status.in_([PENDING, PROCESSING])
        scopes = {
            "type": self._columns.type == bindparam("type_"),
            "owner": self._columns.owner == bindparam("owner_"),
            "total": true(),
        }
        counts = (select(func.count()).select_from(self._jobs).where(active, scopes[c.scope]) for c in caps)
        where = [n.scalar_subquery() < bindparam(f"most_{c.scope}_") for n, c in zip(counts, caps, strict=True)]
        return self._insert(*where)

    def _insert(self, *where: ColumnElement[bool]) -> Any:
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
        return stored.on_conflict_do_nothing().returning(*self.view)

    def _stored(self, *where: ColumnElement[bool]) -> Select[Any]:
        return select(*self.view, self._columns.fingerprint).where(*where)

    # Transitions

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
        where = [self._columns.status == PROCESSING]
        if fenced:
            where.append(self._database.one_of(self._columns.execution_token, "tokens_"))
        return where

    def _report(self, **values: Any) -> dict[bool, ReturningUpdate[Any]]:
        """Return a write of the running attempt: fenced by its token (True), or of whichever runs (False)."""
        return {
            fenced: self._write(*self._owned(fenced=fenced), **values).returning(self._columns.last_updated_at)
            for fenced in (True, False)
        }

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

    # Claims and leases

    def _claim(self) -> ReturningUpdate[Any]:
        jobs, database = self._columns, self._database
        due = self._locked(
            select(jobs.id)
            .where(
                jobs.status == PENDING,
                jobs.type.in_(bindparam("types_", expanding=True)),
                jobs.available_at <= database.now,
            )
            .order_by(jobs.available_at, jobs.created_at)
            .limit(bindparam("most_"))
        )
        return (
            self._writing(
                status=PROCESSING,
                execution_token=random_identifier(),
                attempt=jobs.attempt + 1,
                started_at=database.later(jobs.created_at, database.now),
                lease_expires_at=case(
                    (jobs.type.in_(bindparam("detached_", expanding=True)), null()),
                    else_=database.after("lease_"),
                ),
            )
            .where(jobs.id.in_(select(due.c.id)))
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
                *(jobs.available_at, jobs.created_at),
            )
        )

    def _renew(self) -> ReturningUpdate[Any]:
        jobs, database = self._columns, self._database
        running = self._locked(select(jobs.id).where(self.has_id, *self._owned(fenced=True)))
        return (
            update(self._jobs)
            .values(lease_expires_at=database.after("lease_"))
            .where(
                jobs.id.in_(select(running.c.id)),
                jobs.lease_expires_at.is_not(None),
                *self._owned(fenced=True),
            )
            .returning(jobs.id)
        )

    def _complete_all(self) -> ReturningUpdate[Any]:
        """Return the completion of several attempts at once."""
        jobs = self._columns
        running = self._locked(select(jobs.id).where(self.has_id, *self._owned(fenced=True)))
        return (
            self._writing(**self._ended(COMPLETED), percent_complete=literal_column("100"))
            .where(jobs.id.in_(select(running.c.id)), *self._owned(fenced=True))
            .returning(jobs.id)
        )

    def _purge(self) -> Any:
        """Return the removal of up to `most_` jobs that ended before `before_` and are no part of a batch."""
        jobs, before = self._columns, self._database.after("before_")
        expired = self._locked(
            select(jobs.id)
            .where(
                jobs.completed_at < before,
                jobs.last_updated_at < before,
                jobs.batch_id.is_(None),
                jobs.type.in_(bindparam("types_", expanding=True)),
            )
            .order_by(jobs.completed_at)
            .limit(bindparam("most_"))
        )
        return delete(self._jobs).where(jobs.id.in_(select(expired.c.id))).returning(jobs.id)

    @staticmethod
    def _locked(rows: Select[Any]) -> CTE:
        """Return `rows` locked, without those that somebody else has locked (SQLite locks as a whole)."""
        return rows.with_for_update(skip_locked=True).cte("locked")

    # Recovery

    def stranded(self, rules: Sequence[TypeRules]) -> Select[Any]:
        """Return the query for up to `most_` zombies, and for one job that waits longer than `redispatch_`."""
        jobs, database = self._columns, self._database
        zombies = (
            select(jobs.id, jobs.status)
            .where(self._zombie(rules))
            .order_by(jobs.started_at)
            .limit(bindparam("most_"))
            .subquery()
        )
        waiting = (
            select(jobs.id, jobs.status)
            .where(
                jobs.status == PENDING,
                jobs.type.in_(bindparam("types_", expanding=True)),
                jobs.available_at <= database.now,
                jobs.last_updated_at < database.after("redispatch_"),
            )
            .order_by(jobs.available_at, jobs.created_at)
            .limit(bindparam("most_"))
            .subquery()
        )
        both = union_all(select(zombies), select(waiting)).subquery()
        return select(both.c.id, both.c.status)

    def recover(self, rules: Sequence[TypeRules]) -> ReturningUpdate[Any]:
        """Return the transition of zombies: PENDING again while attempts are left, else FAILED."""
        jobs, database = self._columns, self._database
        allowed = [rule for rule in rules if rule.max_attempts > 1]
        most = case(*((jobs.type == r.type, r.max_attempts) for r in allowed), else_=1) if allowed else literal(1)
        left = case((jobs.attempt < 1, literal_column("1")), else_=jobs.attempt) < most
        ended = database.later(jobs.last_updated_at, database.now)
        code = case(
            (jobs.attempt > 1, literal_column("'attempts-exhausted'")),
            else_=literal_column("'processing-timeout'"),
        )
        zombies = self._locked(select(jobs.id).where(self.has_id, self._zombie(rules)))
        return (
            self._writing(
                status=case((left, PENDING), else_=FAILED),
                execution_token=null(),
                lease_expires_at=null(),
                percent_complete=case((left, null()), else_=jobs.percent_complete),
                completed_at=case((left, null()), else_=ended),
                error_title=case((left, null()), else_=literal("Processing timeout", String)),
                error_code=case((left, null()), else_=code),
            )
            .where(jobs.id.in_(select(zombies.c.id)), jobs.status == PROCESSING)
            .returning(jobs.id, jobs.status)
        )

    def _zombie(self, rules: Sequence[TypeRules]) -> ColumnElement[bool]:
        """A job whose lease lapsed, or that made no report for too long without a lease or by its type's rule."""
        jobs, database = self._columns, self._database
        own = [rule for rule in rules if rule.processing_timeout is not None]
        silent = [
            and_(jobs.type == rule.type, jobs.last_updated_at < database.after(f"silent_{index}_"))
            for index, rule in enumerate(own)
        ]
        return and_(
            jobs.status == PROCESSING,
            jobs.type.in_(bindparam("types_", expanding=True)),
            or_(
                and_(
                    jobs.lease_expires_at < database.now,
                    jobs.execution_token.not_in(bindparam("mine_", expanding=True)),
                ),
                and_(
                    jobs.lease_expires_at.is_(None),
                    jobs.last_updated_at < database.after("silent_"),
                    jobs.type.not_in(names(own)),
                ),
                *silent,
            ),
        )


def silences(rules: Sequence[TypeRules], default: timedelta) -> dict[str, timedelta]:
    """Return the durations that the statements on zombies are bound to."""
    own = [rule.processing_timeout for rule in rules if rule.processing_timeout is not None]
    return {"silent_": -default, **{f"silent_{index}_": -timeout for index, timeout in enumerate(own)}}
