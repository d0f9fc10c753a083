"""The log of a job: lines that its attempts write and that outlive them, numbered by the job's own row.

The row counts the lines and their bytes. Whoever adds lines takes their numbers from it in the same statement that
counts them, so two writers get different numbers, and none is left out.
"""

from __future__ import annotations

import enum
import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from flask_async_jobs.database import Database
from flask_async_jobs.log_statements import LogStatements
from flask_async_jobs.models import jobs_table, log_table
from flask_async_jobs.records import LogEntry, Report
from flask_async_jobs.repository import REPORT_LIMIT, JobRepository
from flask_async_jobs.states import JobError


class Written(enum.Enum):
    """What became of a report."""

    TAKEN = "taken"
    REFUSED = "refused"
    LATER = "later"
    """Nothing was written, because somebody has the row locked."""


class JobLog:
    """Writes the reports of attempts that have lines, and reads the lines.

    Args:
        repository: The job store.
        most: How many bytes the lines of one job may have together, in UTF-8; an empty line counts as one.
    """

    def __init__(self, repository: JobRepository, most: int) -> None:
        self.repository = repository
        self.most = most
        self._over_limit = JobError(
            "Output limit exceeded", f"The log is longer than {most} bytes.", "output-limit-exceeded"
        )
        tables = jobs_table(repository.schema), log_table(repository.schema)
        self._statements = LogStatements(repository.database, *tables)

    def write(
        self, job_id: UUID, execution_token: UUID | None, take: Callable[[], Report | None], lease: timedelta
    ) -> Written:
        """Record what an attempt reports: all of it or nothing, and only while it is the running one.

        A job whose lines would be longer than `most` becomes FAILED. Those that fit are kept, and the report counts
        as refused, like all later ones.

        Args:
            job_id: The job.
            execution_token: That of the attempt; without one whichever attempt runs may report.
            take: Gives the report as late as possible: on SQLite when it is this writer's turn. None: nothing.
            lease: How long the attempt's lease lasts from now on, if it has one.

        Raises:
            StorageUnavailable: The database cannot be asked; whether the report was taken is unknown.
        """
        if not self.repository.database.is_sqlite:
            return self._told(self._write(self.repository, job_id, execution_token, take(), lease))
        with self.repository.database.together() as transaction:
            transaction.run(self._statements.turn)
            written = self._write(self.repository.on(transaction), job_id, execution_token, take(), lease)
        return self._told(written)

    def write_within(
        self, connection: Connection, job_id: UUID, execution_token: UUID, report: Report, lease: timedelta
    ) -> Written:
        """Record a report in the transaction of `connection`; errors are SQLAlchemy's own."""
        return self._write(self.repository.within(connection), job_id, execution_token, report, lease)

    def entries(self, job_id: UUID, after: int, most: int) -> list[LogEntry]:
        """Return up to `most` lines of a job whose numbers are greater than `after`, in their order."""
        database = self.repository.database
        parameters = {"ids_": database.spelled(job_id), "after_": after, "most_": most}
        rows = database.run(self._statements.entries, parameters)
        return [LogEntry(row.line_number, row.line, row.written_at) for row in rows]

    def ends_with(self, job_id: UUID, lines: Sequence[str], after: int) -> bool:
        """Return whether these lines are the last ones of the log, and come after the first `after` ones."""
        job = self.repository.find(job_id)
        start = -1 if job is None else job.log_lines - len(lines)
        return start >= after and [entry.line for entry in self.entries(job_id, start, len(lines))] == [*lines]

    def _write(
        self,
        store: JobRepository,
        job_id: UUID,
        execution_token: UUID | None,
        report: Report | None,
        lease: timedelta,
    ) -> Written:
        if report is None:
            return Written.TAKEN
        ends = list(accumulate(map(size_of, report.lines)))
        attempt = _Attempt(store.database, job_id, execution_token, lease)
        if ends[-1] <= self.most and self._append(attempt, report.percent, report.lines, ends[-1]):
            return Written.TAKEN
        room = self._room(attempt)
        if room is None:
            return Written.REFUSED
        fitting = bisect_right(ends, room)
        if fitting == len(ends):
            return Written.LATER
        if fitting and not self._append(attempt, report.percent, report.lines[:fitting], ends[fitting - 1]):
            return Written.LATER
        store.fail(job_id, execution_token, self._over_limit)
        return Written.REFUSED

    def _append(self, attempt: _Attempt, percent: int | None, lines: Sequence[str], size: int) -> bool:
        """Write lines that have `size` bytes, if they fit, and return whether they are written."""
        parameters = {
            **attempt.named,
            "percent_": percent,
            "lines_": json.dumps(lines) if attempt.database.is_sqlite else list(lines),
            "number_": len(lines),
            "size_": size,
            "room_": self.most - size,
        }
        durations = {"lease_": attempt.lease}
        return all(
            attempt.database.run(statement, parameters, durations, REPORT_LIMIT)
            for statement in self._statements.append[attempt.is_fenced]
        )

    def _room(self, attempt: _Attempt) -> int | None:
        """Return how many more bytes fit into the log, or None if the attempt is not the running one."""
        rows = attempt.database.run(self._statements.size[attempt.is_fenced], attempt.named)
        return self.most - rows[0][0] if rows else None

    def _told(self, written: Written) -> Written:
        if written is Written.TAKEN:
            self.repository.changed()
        if written is Written.REFUSED:
            self.repository.refused.add()
        return written


def size_of(line: str) -> int:
    """Return how many bytes a line counts."""
    return max(1, len(line.encode()))


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Who reports, and where that is written."""

    database: Database
    job_id: UUID
    execution_token: UUID | None
    lease: timedelta

    @property
    def is_fenced(self) -> bool:
        return self.execution_token is not None

    @property
    def named(self) -> dict[str, Any]:
        parameters = {"ids_": self.database.spelled(self.job_id)}
        if self.execution_token is not None:
            parameters["tokens_"] = self.database.spelled(self.execution_token)
        return parameters
