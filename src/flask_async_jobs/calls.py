"""What an application can do with its jobs from Python."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from flask import Response

from flask_async_jobs.api.answers import accepted
from flask_async_jobs.api.results import located, with_result
from flask_async_jobs.batch_calls import BatchCalls, encoded
from flask_async_jobs.config import Refused, duration
from flask_async_jobs.events import JobEvent, follow
from flask_async_jobs.handlers import JobReporter
from flask_async_jobs.instance import Instance
from flask_async_jobs.registry import Handler
from flask_async_jobs.sessions import AnySession
from flask_async_jobs.states import ANY_OWNER, AnyOwner, CancelResult, JobView
from flask_async_jobs.submission import (
    Payload,
    Submission,
    WorkRequest,
    accept_payload,
    checked_owner,
    read_idempotency_key,
)
from flask_async_jobs.submitted import SubmittedJob

_HEARTBEAT = 3_600.0


class JobCalls(BatchCalls):
    """The calls on the jobs of the current application. Each needs an application context."""

    def submit(
        self,
        type: str,
        payload: Any = None,
        *,
        idempotency_key: str | None = None,
        owner: str | None = None,
        force: bool = False,
        run_at: datetime | None = None,
        session: AnySession | None = None,
    ) -> SubmittedJob:
        """Make sure that this work is done: idempotency → freshness → single-flight → create. Never waits.

        Args:
            type: A registered type.
            payload: A JSON value that the type's schema accepts; numbers may be `Decimal` and are kept exactly.
            idempotency_key: 1 to 255 visible ASCII characters, bare or as a quoted string.
            owner: Who submits; 1 to 255 characters.
            force: Skip the freshness window, as `Cache-Control: no-cache` does.
            run_at: Not before this instant (aware).
            session: A `Session` or `scoped_session` on the library's engine: the job exists if and only if its
                transaction commits, and runs only afterwards. A key that is taken leaves the transaction usable.

        Raises:
            UnknownType: No handler is registered for the type.
            InvalidPayload: The type does not take this payload.
            InvalidIdempotencyKey: The key is malformed, or missing where the type requires one.
            IdempotencyKeyConflict: The key was used for other work.
            TooManyActive: As many jobs are active as a cap allows.
            Saturated: Every slot is taken, and `BACKPRESSURE` is `reject`.
            ValueError: The session is on another engine, or an argument makes no sense.
            StorageUnavailable: The database cannot be asked; the job may exist if its commit was under way.
        """
        instance = self._instance()
        handler = instance.registry.get(type)
        if run_at is not None and run_at.tzinfo is None:
            raise ValueError(f"run_at is {run_at!r}: give an aware datetime")
        request = WorkRequest(
            handler,
            _payload(handler, payload, instance.settings.payload_max_bytes),
            idempotency_key=None if idempotency_key is None else read_idempotency_key(idempotency_key),
            owner=checked_owner(owner),
            force=force,
            run_at=run_at,
        )
        return SubmittedJob.of(instance.submit(request, session=session))

    def accepted(self, submitted: SubmittedJob) -> Response:
        """Return the 202 response to a submission, for a view of the application's own.

        Raises:
            RuntimeError: The application has no routes of the library.
        """
        instance = self._instance()
        if not instance.settings.web_enabled:
            raise RuntimeError("ASYNC_JOBS_WEB_ENABLED is off: there is no status route for a response to name")
        return accepted(instance, Submission(submitted.job, submitted.disposition))

    def get(self, job_id: UUID | str, *, owner: str | AnyOwner | None = ANY_OWNER) -> JobView | None:
        """Return a job with its result and `result_url`, or None if it is unknown or another owner's."""
        instance, known = self._instance(), _known(job_id)
        job = None if known is None else instance.find(known, _scope(owner))
        return job and located(instance, with_result(instance, job))

    def cancel(
        self,
        job_id: UUID | str,
        *,
        owner: str | AnyOwner | None = ANY_OWNER,
        session: AnySession | None = None,
    ) -> CancelResult:
        """Cancel an active job at once; its handler is not interrupted, but whatever it reports is refused.

        With `session` the job is cancelled if and only if its transaction commits.
        """
        known = _known(job_id)
        if known is None:
            return CancelResult.NOT_FOUND
        return self._instance().cancel(known, _scope(owner), session)[0]

    def wait(self, job_id: UUID | str, timeout: timedelta | str | float) -> JobView | None:
        """Return the job when it has ended, or as it stands after `timeout`; None if there is no such job.

        Holds no connection; waits with all other waiters and streams of the process on one query an interval.

        Args:
            job_id: The job.
            timeout: A `timedelta`, ISO 8601 text or seconds.
        """
        known, limit = _known(job_id), duration_of("timeout", timeout)
        if known is None or limit is None:
            return None
        self._instance().wait(known, lambda job: job.status.is_terminal, limit, capped=False)
        return self.get(known)

    def watch(self, job_id: UUID | str) -> Iterator[JobEvent]:
        """Give the state of a job as an event, and each change of it until it has ended; nothing if there is none.

        The event of a COMPLETED job has its result. Holds no connection between two events. Closing the iterator
        gives its place back.
        """
        instance, known = self._instance(), _known(job_id)
        if known is None:
            return
        subscription = instance.watcher.subscribe(known, capped=False)
        try:
            job = instance.find(known)
            if job is not None:
                for state in filter(None, follow(subscription, job, math.inf, _HEARTBEAT)):
                    yield JobEvent.of(located(instance, with_result(instance, state)))
        finally:
            subscription.close()

    def reporter(self, job_id: UUID | str, execution_token: UUID | str | None = None) -> JobReporter:
        """Return what reports the outcome of a detached job.

        Args:
            job_id: The job.
            execution_token: The token of the attempt. It may be left out only where this process has the handler of
                the job's type, and that type never has a second attempt.

        Raises:
            ValueError: There is no token, and the job's type may have another attempt.
        """
        instance = self._instance()
        token = None if execution_token is None else _uuid(execution_token)
        if token is None:
            _require_single_attempt(instance, _uuid(job_id))
        return JobReporter(instance.reports, _uuid(job_id), token, instance.settings.result_max_bytes)

    def last_completed_at(self, type: str, payload: Any = None, owner: str | None = None) -> datetime | None:
        """Return when this work (type, owner and payload) last completed, or None."""
        instance = self._instance()
        handler = instance.registry.get(type)
        accepted = _payload(handler, payload, instance.settings.payload_max_bytes)
        key = instance.submissions.work_key(handler, checked_owner(owner), accepted.fingerprint)
        return instance.repository.last_completed_at(key)

    def recover(self) -> int:
        """Make one pass over stranded jobs and return how many were acted on. Harmless at any time."""
        return self._instance().recovery.sweep()

    def purge(self, older_than: timedelta | str | float | None = None) -> int:
        """Make one pass over jobs whose retention is over, and return how many were removed.

        Args:
            older_than: How long ago a job must have ended: a `timedelta`, ISO 8601 text or seconds. Never less than
                `RETENTION`, which is the default: until then the job's `Expires` was announced.

        Raises:
            ValueError: `older_than` is no duration.
        """
        return self._instance().purge.sweep(duration_of("older_than", older_than))


def _payload(handler: Handler, value: Any, limit: int) -> Payload:
    return accept_payload(handler, None if value is None else encoded(value), limit)


def _require_single_attempt(instance: Instance, job_id: UUID) -> None:
    job = instance.find(job_id)
    if job is None:
        return
    if job.type not in instance.registry or instance.registry.get(job.type).rules.max_attempts > 1:
        raise ValueError(f"give the execution token: jobs of type {job.type!r} may have more than one attempt")


def duration_of(name: str, value: timedelta | str | float | None) -> timedelta | None:
    """Return the duration that `value` spells; an error names it `name`."""
    try:
        return None if value is None else duration(value, zero=True)
    except Refused as refused:
        raise ValueError(f"{name} is {value!r}: {refused}") from None


def _uuid(value: UUID | str) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)


def _known(job_id: UUID | str) -> UUID | None:
    """Return the id that a job may have, or None for text that is no UUID."""
    try:
        return _uuid(job_id)
    except ValueError:
        return None


def _scope(owner: str | AnyOwner | None) -> str | AnyOwner:
    return owner if isinstance(owner, AnyOwner) else checked_owner(owner)
