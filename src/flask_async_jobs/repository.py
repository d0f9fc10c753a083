"""The job store: one method is one transition, and one transition is one statement (see `statements`).

A transition names in its `WHERE` what it requires, so the database decides and nothing is read first. A row that
does not come back means: refused, and nothing was changed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import Row

from flask_async_jobs.database import Database
from flask_async_jobs.expressions import mark_of
from flask_async_jobs.records import Claim, TypeRules, claim_of, names, view_of
from flask_async_jobs.states import ANY_OWNER, AnyOwner, JobError, JobStatus, JobView
from flask_async_jobs.store_reading import ReadingStore
from flask_async_jobs.store_submissions import SubmissionStore
from flask_async_jobs.upkeep import silences

REPORT_LIMIT: Final = 0.9
"""Seconds that a report may wait for a connection."""

GIVEN_BACK: Final = 1000
"""Jobs that are given back in one statement."""


class JobRepository(SubmissionStore, ReadingStore):
    """Every read and write of jobs. Safe to share between threads; holds a connection only during a statement.

    Each method raises `StorageUnavailable` when the database cannot be asked.

    Args:
        engine: PostgreSQL or SQLite.
        schema: Where the tables stand, if not in the default schema.
        clock: Replaces the database's clock.

    Attributes:
        schema: Where the tables stand, if not in the default schema.
        refused: How many writes of attempts were refused, because the attempt no longer was the running one.
        changed: Called after every write that took effect; must return at once.
        ended: Called with the ids of jobs that were taken from their attempts; must return at once.
    """

    # Claims

    def claim(
        self, rules: Sequence[TypeRules], limit: int, lease: timedelta, mark: UUID | None = None
    ) -> list[Claim]:
        """Start an attempt of up to `limit` due PENDING jobs of these types, the oldest first.

        Each gets a new execution token, its attempt counted and, unless its type is detached, a lease. No two
        callers get one job; on PostgreSQL none waits for another.

        Args:
            rules: The types.
            limit: The most attempts.
            lease: How long the claim lasts.
            mark: A random UUID of this call's own, for `give_back` if there is no answer.
        """
        parameters = {
            "mark_": mark_of(mark or uuid4()),
            "types_": names(rules),
            "detached_": [r.type for r in rules if r.detached],
            "most_": limit,
        }
        rows = self._told(self.database.run(self.statements.claim, parameters, {"lease_": lease}))
        oldest_first = sorted(rows, key=lambda row: (row.available, row.created))
        return [claim_of(row) for row in oldest_first if row.id is not None]

    def give_back(self, marks: Collection[UUID]) -> list[UUID]:
        """Make the jobs PENDING again that were claimed with these marks, and return them; no attempt is counted.

        For claims that raised, so that nobody runs what they took. Rows that somebody has locked stay as they are.
        """
        parameters = {"marks_": [mark_of(mark) for mark in marks], "most_": GIVEN_BACK}
        return [row.id for row in self._told(self.database.run(self.statements.give_back, parameters))]

    def renew(self, claims: Collection[Claim], lease: timedelta) -> int:
        """Prolong the leases of these attempts, but for rows that somebody has locked at the moment.

        Changes neither `last_updated_at` nor `revision`. Returns how many were prolonged.
        """
        parameters = {
            "ids_": self.database.spelled(*(claim.job_id for claim in claims)),
            "tokens_": self.database.spelled(*(claim.execution_token for claim in claims)),
        }
        return len(self.database.run(self.statements.renew, parameters, {"lease_": lease}))

    def retry(self, job_id: UUID, execution_token: UUID, delay: timedelta, *, counted: bool = True) -> bool:
        """End the running attempt and make its job due again after `delay`. False: the claim was lost.

        The job is PENDING and holds its single-flight place. Unless `counted` the attempt does not use up one.
        """
        parameters = {**self._attempt(job_id, execution_token), "uncounted_": 0 if counted else 1}
        return bool(self._fenced(self.statements.retry, parameters, {"delay_": delay}))

    # Reports of the running attempt

    def progress(self, job_id: UUID, execution_token: UUID | None, percent: int, lease: timedelta) -> bool | None:
        """Record how far the attempt is, and renew its lease if it has one.

        Writes only while the attempt is the running one; without a token, while any is. Waits neither for a row
        that somebody has locked, nor long for a connection.

        Returns:
            Whether it was taken; None if somebody has the row locked, and the report may be made again.
        """
        fenced = execution_token is not None
        parameters = {**self._attempt(job_id, execution_token), "percent_": percent}
        rows = self.database.run(self.statements.progress[fenced], parameters, {"lease_": lease}, REPORT_LIMIT)
        if not rows and self.is_running(job_id, execution_token):
            return None
        if not rows:
            self.refused.add()
        return bool(self._told(rows))

    def expire(self, claim: Claim, error: JobError) -> bool:
        """Fail an attempt whose time is up, unless somebody has its row locked; then False, and it still runs."""
        failure = {"title_": error.title, "detail_": error.detail, "code_": error.code}
        parameters = {**self._attempt(claim.job_id, claim.execution_token), **failure}
        if self._told(self.database.run(self.statements.expire, parameters)):
            self.ended([claim.job_id])
            return True
        return not self.is_running(claim.job_id, claim.execution_token)

    def mark_effect_started(self, job_id: UUID, execution_token: UUID | None) -> bool:
        """Record that the job began to have effects; the first instant stays. False: refused."""
        statement = self.statements.effect_started[execution_token is not None]
        return bool(self._fenced(statement, self._attempt(job_id, execution_token)))

    def complete(self, job_id: UUID, execution_token: UUID | None, result: str | None = None) -> datetime | None:
        """Record that the attempt completed.

        Writes only while that attempt is the running one: a worker whose job was cancelled, or recovered and
        claimed again, changes nothing, however late it returns.

        Returns:
            The persisted instant, or None if the claim was lost.
        """
        statement = self.statements.complete[execution_token is not None]
        rows = self._fenced(statement, {**self._attempt(job_id, execution_token), "result_": result})
        return rows[0][0] if rows else None

    def complete_all(self, claims: Collection[Claim]) -> set[UUID]:
        """Record that these attempts completed, but for rows that somebody has locked; fenced like `complete`.

        Returns:
            The ids of the jobs that were completed. One that is missing was lost or locked: `complete` tells.
        """
        parameters = {
            "ids_": self.database.spelled(*(claim.job_id for claim in claims)),
            "tokens_": self.database.spelled(*(claim.execution_token for claim in claims)),
        }
        return {row[0] for row in self._told(self.database.run(self.statements.complete_all, parameters))}

    def fail(self, job_id: UUID, execution_token: UUID | None, error: JobError) -> datetime | None:
        """Record that the attempt failed; fenced like `complete`."""
        statement = self.statements.fail[execution_token is not None]
        failure = {"title_": error.title, "detail_": error.detail, "code_": error.code}
        rows = self._fenced(statement, {**self._attempt(job_id, execution_token), **failure})
        return rows[0][0] if rows else None

    def cancel(self, job_id: UUID, owner: str | AnyOwner = ANY_OWNER) -> JobView | None:
        """Cancel an active job, whoever runs it. None: unknown, another owner's, or already terminal."""
        statement, parameters = self._scoped(self.statements.cancel, self.statements.cancel_owned, job_id, owner)
        rows = self._told(self.database.run(statement, parameters))
        if rows:
            self.ended([job_id])
        return view_of(rows[0]) if rows else None

    # Recovery

    def stranded(
        self,
        rules: Sequence[TypeRules],
        limit: int,
        silent: timedelta,
        waiting: timedelta,
        mine: Collection[UUID],
    ) -> dict[UUID, JobStatus]:
        """Return up to `limit` zombies, and up to `limit` due jobs that have been PENDING for `waiting`.

        Args:
            rules: The types to look at; jobs of any other are left alone.
            limit: How many of each.
            silent: After how long without a report a job without a lease is a zombie.
            waiting: After how long a PENDING job should have been claimed.
            mine: The tokens of attempts that this process runs, whose lapsed leases mean nothing.
        """
        parameters = {"types_": names(rules), "most_": limit, "mine_": list(mine)}
        durations = {**silences(rules, silent), "redispatch_": -waiting}
        rows = self.database.run(self.statements.stranded(rules), parameters, durations)
        return {row.id: JobStatus(row.status) for row in rows if row.id is not None}

    def recover(
        self, job_ids: Collection[UUID], rules: Sequence[TypeRules], silent: timedelta, mine: Collection[UUID]
    ) -> dict[UUID, JobStatus]:
        """Take these jobs from their dead attempts, if they are zombies still and nobody has them locked.

        PENDING again while attempts are left, otherwise FAILED. Returns the new state of those that were taken.
        """
        parameters = {"ids_": self.database.spelled(*job_ids), "types_": names(rules), "mine_": list(mine)}
        rows = self._told(self.database.run(self.statements.recover(rules), parameters, silences(rules, silent)))
        self.ended([row.id for row in rows])
        return {row.id: JobStatus(row.status) for row in rows}

    def purge(self, rules: Sequence[TypeRules], older_than: timedelta, limit: int) -> int:
        """Remove up to `limit` jobs of these types that ended more than `older_than` ago, and return how many.

        Their lines go with them. Never an active job, nor a part of a batch; rows that somebody has locked stay.
        """
        parameters = {"types_": names(rules), "most_": limit}
        with self.database.together() as transaction:
            removed = transaction.run(self.statements.purge, parameters, {"before_": -older_than})
            self.remove_lines(transaction, removed)
        return len(removed)

    def remove_lines(self, transaction: Database, removed: Sequence[Row[Any]]) -> None:
        """Remove the lines of jobs that were removed in a transaction. No statement if they have none.

        Args:
            transaction: The transaction.
            removed: The jobs; each has an `id`, and `log_lines`.
        """
        if ids := [row.id for row in removed if row.log_lines and row.id is not None]:
            transaction.run(self.statements.remove_lines, {"ids_": transaction.spelled(*ids)})
