"""The statements of the recurring passes: what is stranded, what becomes of it, and what is removed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    String,
    and_,
    bindparam,
    case,
    delete,
    literal,
    literal_column,
    null,
    or_,
    select,
    union_all,
)
from sqlalchemy.sql.dml import ReturningUpdate

from flask_async_jobs.expressions import mark_in
from flask_async_jobs.records import TypeRules, names
from flask_async_jobs.transitions import FAILED, PENDING, PROCESSING, Transitions, checked, limit


class Upkeep(Transitions):
    """The statements on lost claims, zombies, jobs that wait for too long, and those that nobody expects."""

    def _give_back(self) -> ReturningUpdate[Any]:
        """Return the return of up to `most_` claims with these marks; what they took is PENDING as before."""
        jobs = self._columns
        lost = self._locked(
            select(jobs.id)
            .where(
                jobs.status == PROCESSING,
                checked(mark_in(jobs.execution_token).in_(bindparam("marks_", expanding=True))),
            )
            .order_by(jobs.started_at)
            .limit(limit("most_"))
        )
        return (
            self._writing(**self._unclaimed(), attempt=jobs.attempt - 1)
            .where(self._is_one_of(lost), checked(jobs.status == PROCESSING))
            .returning(jobs.id)
        )

    def stranded(self, rules: Sequence[TypeRules]) -> Select[Any]:
        """Return the query for up to `most_` zombies, and for one job that waits longer than `redispatch_`."""
        jobs, database = self._columns, self._database
        zombies = (
            select(jobs.id, jobs.status)
            .where(jobs.status == PROCESSING, self._zombie(rules))
            .order_by(jobs.started_at)
            .limit(limit("most_"))
            .subquery()
        )
        waiting = (
            select(jobs.id, jobs.status)
            .where(
                jobs.status == PENDING,
                jobs.available_at <= database.after("redispatch_"),
                checked(
                    jobs.type.in_(bindparam("types_", expanding=True)),
                    jobs.last_updated_at < database.after("redispatch_"),
                ),
            )
            .order_by(jobs.available_at, jobs.created_at)
            .limit(limit("most_"))
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
            .where(self._is_one_of(zombies), checked(jobs.status == PROCESSING))
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
        return checked(
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

    def removal(self) -> Any:
        """Return the removal of up to `most_` jobs that ended before `before_` and are no part of a batch."""
        jobs, before = self._columns, self._database.after("before_")
        expired = self._locked(
            select(jobs.id)
            .where(
                jobs.completed_at < before,
                jobs.batch_id.is_(None),
                checked(jobs.last_updated_at < before, jobs.type.in_(bindparam("types_", expanding=True))),
            )
            .order_by(jobs.completed_at)
            .limit(limit("most_"))
        )
        return delete(self._jobs).where(self._is_one_of(expired)).returning(jobs.id, jobs.log_lines)


def silences(rules: Sequence[TypeRules], default: timedelta) -> dict[str, timedelta]:
    """Return the durations that the statements on zombies are bound to."""
    own = [rule.processing_timeout for rule in rules if rule.processing_timeout is not None]
    return {"silent_": -default, **{f"silent_{index}_": -timeout for index, timeout in enumerate(own)}}
