"""What a handler and a detached worker meet: the context of an attempt, and the reporter of an outcome."""

from __future__ import annotations

import os
from datetime import datetime
from typing import Any
from uuid import UUID

from flask_async_jobs import payloads
from flask_async_jobs.errors import AttemptLost, JobCancelled, StorageUnavailable
from flask_async_jobs.pending import PATIENCE, Pending
from flask_async_jobs.records import Claim
from flask_async_jobs.reports import Reports
from flask_async_jobs.repository import JobRepository
from flask_async_jobs.sessions import AnySession, connection_of, plain, when_ended
from flask_async_jobs.states import JobError, JobStatus


class JobReporter:
    """Reports on one job from wherever its work is done. Safe to share between threads.

    Every method returns whether the report was taken. False means that the job is unknown or has ended, or that a
    newer attempt runs it; nothing was changed then, and the worker must stop.

    With an execution token only the attempt that got it can report. Without one whichever attempt runs can, which
    is safe only for a type that never has a second attempt.

    `progress` and `log` write at most twice a second. What comes sooner after the last write is kept and written in
    half a second, and before anything that the other methods report; `True` then says that nothing was refused so
    far. A refusal is told within half a second, and by every later call.
    """

    def __init__(self, reports: Reports, job_id: UUID, execution_token: UUID | None, limit: int) -> None:
        self._reports = reports
        self._repository: JobRepository = reports.log.repository
        self._job_id = job_id
        self._execution_token = execution_token
        self._limit = limit
        self._pending: dict[int, Pending] = {}

    def progress(self, percent: float) -> bool:
        """Report how much is done, 0 to 100 (cut to a whole number), and that the worker lives.

        Takes less than a second, and raises nothing for the database's sake: a percentage that is not written in
        that time is tried again.

        Raises:
            ValueError: `percent` is not a number from 0 to 100.
        """
        if isinstance(percent, bool) or not isinstance(percent, int | float) or not 0 <= percent <= 100:
            raise ValueError(f"{percent!r} is not a percentage: give a number from 0 to 100")
        return self._kept().add(percent=int(percent))

    def log(self, line: str) -> bool:
        """Add a line to the job's log, where it outlives the job's end, its attempts and every process.

        Takes less than a second, and raises nothing for the database's sake: a line that is not written in that
        time is tried again, for as long as a lease lasts. A job whose lines are longer than `LOG_MAX_BYTES` fails
        with the code `output-limit-exceeded`; the lines that fit are kept.

        Args:
            line: Any text, also of several lines. NUL and lone surrogates become U+FFFD.
        """
        return self._kept().add(line=line)

    def flush(self, patience: float = PATIENCE) -> None:
        """Write what `progress` and `log` have kept, unless nothing can be written for `patience` seconds."""
        if pending := self._pending.get(os.getpid()):
            pending.flush(patience)

    def _kept(self) -> Pending:
        pid = os.getpid()  # what a parent process has kept is written by the parent
        pending = self._pending.get(pid)
        return pending or self._pending.setdefault(pid, Pending(self._reports, self._job_id, self._execution_token))

    def _ended(self, taken: bool) -> bool:
        """Take no more reports: the job has ended, or is another attempt's."""
        if pending := self._pending.get(os.getpid()):
            pending.refuse()
        return taken

    def mark_effect_started(self) -> bool:
        """Report that the work begins to have effects that a cancellation does not undo."""
        self.flush()
        return self._repository.mark_effect_started(self._job_id, self._execution_token)

    def complete(self, result: Any = None) -> bool:
        """Report that the work is done.

        Args:
            result: A small JSON value. One that cannot be stored, or is longer than `RESULT_MAX_BYTES`, makes the
                job FAILED with the code `result-not-storable` or `result-too-large`.
        """
        self.flush()
        match stored_result(result, self._limit):
            case JobError() as error:
                ended = self._repository.fail(self._job_id, self._execution_token, error)
            case text:
                ended = self._repository.complete(self._job_id, self._execution_token, text)
        return self._ended(ended is not None)

    def fail(self, title: str, detail: str | None = None, code: str | None = None) -> bool:
        """Report that the work failed. Texts longer than 256, 2,000 and 64 characters are cut.

        Args:
            title: What the client is shown; a blank one becomes `Job failed`.
            detail: More about this occurrence.
            code: A stable code for programs; `job-failed` if absent.
        """
        self.flush()
        ended = self._repository.fail(self._job_id, self._execution_token, JobError.of(title, detail, code))
        return self._ended(ended is not None)


class JobContext(JobReporter):
    """One attempt of a job, as its handler sees it. Also a reporter that is fenced by the attempt's token."""

    def __init__(self, reports: Reports, claim: Claim, payload: Any, limit: int) -> None:
        super().__init__(reports, claim.job_id, claim.execution_token, limit)
        self._claim = claim
        self._payload = payload
        self.completes_in_session = False
        self.own_session: AnySession | None = None
        self._completing: AnySession | None = None

    @property
    def job_id(self) -> UUID:
        """The id of the job."""
        return self._claim.job_id

    @property
    def type(self) -> str:
        """The type of the job."""
        return self._claim.type

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._claim.attempt

    @property
    def execution_token(self) -> UUID:
        """The token that fences this attempt; a detached handler hands it to the worker."""
        return self._claim.execution_token

    @property
    def owner(self) -> str | None:
        """Who submitted the job, or None."""
        return self._claim.owner or None

    @property
    def payload(self) -> Any:
        """What the type's schema loaded from the stored JSON, or None without a schema."""
        return self._payload

    def complete(self, result: Any = None, *, session: AnySession | None = None) -> bool:
        """Record that the job is done: at once, or with `session` when its transaction commits.

        In the handler's own transaction the job is COMPLETED if and only if the handler's rows are committed. A job
        whose handler returns without committing fails.

        Args:
            result: A small JSON value; see `JobReporter.complete`.
            session: A `Session` or `scoped_session` on the library's engine; of an `atomic` handler its own, and
                committed when it returns.

        Raises:
            AttemptLost: With a session: the attempt no longer is the running one; roll back.
            ValueError: The session is on another engine, or the result cannot be stored in its transaction.
        """
        session = session or self.own_session
        if session is None:
            return super().complete(result)
        stored = stored_result(result, self._limit)
        if isinstance(stored, JobError):
            raise ValueError(stored.detail)  # noqa: TRY004 - the value, not its type
        self.complete_in(session, stored)
        return True

    def complete_in(self, session: AnySession, result: str | None) -> None:
        """Write the completion in the transaction of `session`; `result` is JSON text. See `complete`."""
        self.flush()
        connection = connection_of(session, self._repository.database.engine)
        if (pending := self._pending.get(os.getpid())) and (report := pending.rest()):
            # Nobody else can write as long as the session holds the row or, on SQLite, the database.
            self._reports.log.write_within(
                connection, self.job_id, self.execution_token, report, self._reports.lease
            )
        self.completes_in_session = True
        self._completing = plain(session)
        written = self._repository.within(connection).complete(self.job_id, self.execution_token, result)
        if written is None:
            raise AttemptLost(f"attempt {self.attempt} of job {self.job_id} is no longer the running one")
        when_ended(session, self._repository.changed)

    def leave(self) -> None:
        """Roll back a completion that the handler left uncommitted: its transaction holds the job's row."""
        if self._completing is not None:
            self._completing.rollback()

    @property
    def last_completed_at(self) -> datetime | None:
        """When this work (type, owner and payload) last completed. Reads the database."""
        return None if self._claim.work_key is None else self._repository.last_completed_at(self._claim.work_key)

    @property
    def is_cancelled(self) -> bool:
        """Whether this attempt should stop: the job was cancelled, or is no longer this attempt's to run.

        Reads the database; while that does not answer, the attempt goes on.
        """
        try:
            return not self._repository.is_running(self.job_id, self.execution_token)
        except StorageUnavailable:
            return False

    def raise_if_cancelled(self) -> None:
        """Leave the handler if this attempt should stop. Reads the database.

        Raises:
            JobCancelled: The job was cancelled.
            AttemptLost: It was recovered from this attempt, or has ended otherwise.
        """
        if not self.is_cancelled:
            return
        job = self._repository.find(self.job_id)
        if job is not None and job.status is JobStatus.CANCELLED:
            raise JobCancelled(f"job {self.job_id} was cancelled")
        raise AttemptLost(f"attempt {self.attempt} of job {self.job_id} is no longer the running one")


def stored_result(value: Any, limit: int) -> str | JobError | None:
    """Return the JSON text to store for a handler's result, None for none, or why it cannot be stored."""
    if value is None:
        return None
    try:
        text = payloads.encode(value, limit)
    except payloads.TooLong:
        return _too_large(limit)
    except (payloads.NotJson, RecursionError):
        return JobError.of("Result cannot be stored", "The result is not a JSON value.", "result-not-storable")
    return _too_large(limit) if len(text.encode()) > limit else text


def _too_large(limit: int) -> JobError:
    return JobError.of("Result too large", f"The result is longer than {limit} bytes.", "result-too-large")
