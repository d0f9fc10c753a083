"""Running one claimed job and recording its outcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from flask_async_jobs.completions import Completions
from flask_async_jobs.config import LONGEST, Refused, duration
from flask_async_jobs.errors import AttemptLost, JobCancelled, JobFailed, RetryLater, StorageUnavailable
from flask_async_jobs.handlers import JobContext, stored_result
from flask_async_jobs.options import HandlerOptions
from flask_async_jobs.records import Claim
from flask_async_jobs.registry import Handler, HandlerRegistry
from flask_async_jobs.reports import Reports
from flask_async_jobs.retry import backoff_delay
from flask_async_jobs.sessions import AnySession, outage_told
from flask_async_jobs.states import JobError

AFTER_OUTAGE: Final = timedelta(seconds=1)
PROCESSING_ERROR: Final = "Processing error"
NOT_COMMITTED: Final = JobError(PROCESSING_ERROR, None, "processing-error")

_log = logging.getLogger("flask_async_jobs")


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler returned; `result` is the JSON text to store."""

    result: str | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler failed, and this is what the client is shown."""

    error: JobError


@dataclass(frozen=True, slots=True)
class Retried:
    """The job is to run again after `delay`; unless `counted` this attempt does not use up one."""

    delay: timedelta
    counted: bool = True


@dataclass(frozen=True, slots=True)
class Left:
    """There is nothing to record: it was written with the handler's rows, or another process reports it."""


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """The handler wrote the completion in a transaction of its own; only the row knows whether it was committed."""


Outcome = Completed | Failed | Retried | Left | Unconfirmed


class Executor:
    """Runs attempts. An attempt holds neither a connection nor a transaction of the library's.

    Args:
        registry: The handlers.
        reports: What writes the reports of attempts, and the job store.
        context: Gives the context that a handler runs in, a new one for each attempt.
        lease: How long a claim lasts after its last renewal; an outcome, and what is reported, is tried so long.
        result_limit: The longest result in bytes.
        expose_errors: Whether the text of an unexpected exception becomes the detail that the client sees.
    """

    def __init__(
        self,
        registry: HandlerRegistry,
        reports: Reports,
        context: Callable[[], AbstractContextManager[Any]],
        *,
        lease: timedelta,
        result_limit: int,
        expose_errors: bool = False,
    ) -> None:
        self._registry = registry
        self._reports = reports
        self._repository = reports.log.repository
        self._context = context
        self._lease = lease
        self._result_limit = result_limit
        self._expose_errors = expose_errors
        self._completions = Completions(self._repository)

    def run(self, claim: Claim) -> None:
        """Run one attempt and record how it ended. Raises nothing, whatever the handler does."""
        self._record(claim, self._attempt(claim))

    def _attempt(self, claim: Claim) -> Outcome:
        options = HandlerOptions()
        try:
            handler = self._registry.get(claim.type)
            options = handler.options
            return self._outcome(handler, claim)
        except BaseException as error:  # whatever a handler or a teardown raises ends this attempt, not the worker
            return self._survived_failure(claim, options, error)

    def _survived_failure(self, claim: Claim, options: HandlerOptions, error: BaseException) -> Outcome:
        try:
            return self._failure(claim, options, error)
        except BaseException:  # an exception whose own attributes or text raise
            _log.error("job %s: attempt %d raised what cannot be told", claim.job_id, claim.attempt)
            return Failed(JobError(PROCESSING_ERROR, None, "processing-error"))

    def _outcome(self, handler: Handler, claim: Claim) -> Outcome:
        payload = handler.load(claim.payload)
        context = JobContext(self._reports, claim, payload, self._result_limit)
        try:
            return self._handled(handler, context)
        finally:
            context.flush(self._lease.total_seconds())  # the log is whole before the job has ended

    def _handled(self, handler: Handler, context: JobContext) -> Outcome:
        with self._context() as session:
            if handler.options.atomic:
                context.own_session = session
            try:
                value = handler.call(context, context.payload)
                if handler.options.detached:
                    return Left()
                result = stored_result(value, self._result_limit)
                if isinstance(result, JobError):
                    return Failed(result)
                if handler.options.atomic:
                    return self._completed_atomically(context, session, result)
            finally:
                context.leave()
        return Unconfirmed() if context.completes_in_session else Completed(result)

    def _completed_atomically(self, context: JobContext, session: AnySession, result: str | None) -> Outcome:
        try:
            with outage_told():
                if not context.completes_in_session:
                    context.complete_in(session, result)
                session.commit()
        except StorageUnavailable:
            _log.exception("job %s: attempt %d is left to recovery", context.job_id, context.attempt)
        return Left()

    def _failure(self, claim: Claim, options: HandlerOptions, error: BaseException) -> Outcome:
        if isinstance(error, RetryLater):
            return Retried(later(getattr(error, "delay", None)), counted=False)
        if isinstance(error, StorageUnavailable):  # the job store was away: no failure of the job
            return Retried(AFTER_OUTAGE, counted=False)
        retried = isinstance(error, options.retry_on)
        if retried and claim.attempt < options.max_attempts:
            _log.info(
                "job %s (%s): attempt %d is tried again", claim.job_id, claim.type, claim.attempt, exc_info=error
            )
            return Retried(backoff_delay(claim.attempt, options.backoff))
        failure = self._shown(claim, error)
        exhausted = retried and claim.attempt > 1
        return Failed(replace(failure, code="attempts-exhausted") if exhausted else failure)

    def _shown(self, claim: Claim, error: BaseException) -> JobError:
        if isinstance(error, JobFailed):
            return JobError.of(
                getattr(error, "title", ""), getattr(error, "detail", None), getattr(error, "code", None)
            )
        if isinstance(error, JobCancelled | AttemptLost):
            _log.info("job %s: attempt %d stopped: %s", claim.job_id, claim.attempt, error)
        else:
            _log.error("job %s (%s): attempt %d raised", claim.job_id, claim.type, claim.attempt, exc_info=error)
        detail = repr_of(error) if self._expose_errors else None
        return JobError.of(PROCESSING_ERROR, detail, "processing-error")

    # The outcome

    def _record(self, claim: Claim, outcome: Outcome) -> None:
        """Write the outcome, again and again while the lease lives: an outage is not the job's failure."""
        for pause in self._pauses():
            try:
                self._write(claim, outcome)
            except StorageUnavailable:
                time.sleep(pause)
            except Exception:  # the slot has to come free, and recovery ends the job
                _log.exception(
                    "job %s: the outcome of attempt %d could not be written", claim.job_id, claim.attempt
                )
                return
            else:
                return
        _log.error("job %s: the database is gone; attempt %d is left to recovery", claim.job_id, claim.attempt)

    def _write(self, claim: Claim, outcome: Outcome) -> None:
        match outcome:
            case Completed(None):
                written: object = self._completions.write(claim)
            case Completed(result):
                written = self._repository.complete(claim.job_id, claim.execution_token, result)
            case Failed(error):
                written = self._repository.fail(claim.job_id, claim.execution_token, error)
            case Retried(delay, counted):
                written = self._repository.retry(claim.job_id, claim.execution_token, delay, counted=counted)
            case Unconfirmed():
                self._confirm(claim)
                return
            case Left():
                return
        if not written:
            _log.info("job %s: the outcome of attempt %d came too late", claim.job_id, claim.attempt)

    def _confirm(self, claim: Claim) -> None:
        """Fail the job if it still runs: its completion was rolled back with the handler's rows."""
        if self._repository.is_running(claim.job_id, claim.execution_token):
            _log.error("job %s: its handler completed it in a session that it did not commit", claim.job_id)
            self._repository.fail(claim.job_id, claim.execution_token, NOT_COMMITTED)

    def _pauses(self) -> Iterator[float]:
        deadline = time.monotonic() + self._lease.total_seconds()
        pause = 0.05
        while True:
            yield pause
            if time.monotonic() >= deadline:
                return
            pause = min(pause * 2, 2.0)


def later(delay: Any) -> timedelta:
    """Return the delay of a `RetryLater`, given like a setting: none if it is negative or no duration."""
    if isinstance(delay, timedelta):
        return min(max(delay, timedelta(0)), LONGEST)
    try:
        return duration(delay, zero=True)
    except Refused:
        return timedelta(0)


def repr_of(error: BaseException) -> str:
    """Return a description of `error` even if its own `str()` raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # a foreign __str__ may raise anything
        return type(error).__name__
