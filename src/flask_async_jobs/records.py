"""What goes into the repository and comes out of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, Table

from flask_async_jobs.states import JobError, JobStatus, JobView


@dataclass(frozen=True, slots=True)
class NewJob:
    """A submission that is ready to be stored; without a payload it needs no fingerprint."""

    job_id: UUID
    type: str
    owner: str
    work_key: str
    fingerprint: str | None
    coalescing_key: str | None = None
    idempotency_key: str | None = None
    payload: str | None = None
    run_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A job that a submission found or made, with what the submission has to be compared to."""

    view: JobView
    fingerprint: str | None


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run one attempt of a job, until the job ends or another attempt takes over."""

    job_id: UUID
    type: str
    owner: str
    attempt: int
    execution_token: UUID
    payload: str | None
    work_key: str | None


@dataclass(frozen=True, slots=True)
class TypeRules:
    """What the statements have to know of a type."""

    type: str
    detached: bool = False
    max_attempts: int = 1
    processing_timeout: timedelta | None = None
    timeout: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Cap:
    """At most `most` active jobs: of one type, of one owner, or (`scope` is `total`) of all."""

    scope: str
    most: int


@dataclass(frozen=True, slots=True)
class Count:
    """How many jobs there are of a type in a state, and how old the oldest of them is."""

    type: str
    status: str
    jobs: int
    age: timedelta


@dataclass(frozen=True, slots=True)
class Report:
    """What an attempt reports in one write: how far it is, if that is new, and lines of its log in their order."""

    percent: int | None
    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line of a job's log; the numbers begin with 1 and leave no gap."""

    number: int
    line: str
    at: datetime


class Tally:
    """A count that several threads add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.value = 0

    def add(self) -> None:
        """Count one more."""
        with self._lock:
            self.value += 1


_viewed: Final = [
    "id",
    "type",
    "status",
    "created_at",
    "last_updated_at",
    "started_at",
    "completed_at",
    "percent_complete",
    "attempt",
    "effect_started_at",
    "error_title",
    "error_detail",
    "error_code",
    "owner",
    "batch_id",
    "revision",
    "log_lines",
]


def view_columns(table: Table) -> list[ColumnElement[Any]]:
    """Return the columns that a `JobView` is made of: neither payload nor result."""
    return [table.c[name] for name in _viewed]


def view_of(row: Sequence[Any]) -> JobView:
    """Build the view of a row that begins with `view_columns`."""
    (
        id,
        type,
        status,
        created,
        updated,
        started,
        completed,
        percent,
        attempt,
        effect,
        title,
        detail,
        code,
    ) = row[:13]
    owner, batch_id, revision, log_lines = row[13:17]
    return JobView(
        job_id=id,
        type=type,
        status=JobStatus(status),
        created_at=created,
        last_updated_at=updated,
        started_at=started,
        completed_at=completed,
        percent_complete=percent,
        attempt=attempt,
        effect_started=effect is not None,
        error=None if title is None else JobError(title, detail, code or "job-failed"),
        owner=owner or None,
        batch_id=batch_id,
        revision=revision,
        log_lines=log_lines or 0,
    )


def claim_of(row: Sequence[Any]) -> Claim:
    """Build the claim of a row that begins with its members."""
    job_id, type, owner, attempt, execution_token, payload, work_key, *_ = row
    return Claim(job_id, type, owner, attempt, execution_token, payload, work_key)


def names(rules: Sequence[TypeRules]) -> list[str]:
    """Return the types that the rules are for."""
    return [rule.type for rule in rules]
