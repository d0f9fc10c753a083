"""Running one claimed job and recording its outcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from flask_async_jobs import payloads
from flask_async_jobs.errors import AttemptLost, JobCancelled, JobFailed, StorageUnavailable
from flask_async_jobs.handlers import JobContext, stored_result
from flask_async_jobs.records import Claim
from flask_async_jobs.registry import Handler, HandlerRegistry
from flask_async_jobs.repository import JobRepository
from flask_async_jobs.states import JobError

PROCESSING_ERROR: Final = "Processing error"

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
class Left:
    """There is nothing to record: the attempt no longer owns the job, or another process reports its outcome."""


Outcome = Completed | Failed | Left


class Executor:
    """Runs attempts. An attempt holds neither a connection nor a transaction of the library's.

    Args:
        registry: The handlers.
        repository: The job store.
        context: Gives the context that a handler runs in, a new one for each attempt.
        lease: How long a claim lasts after its last renewal; an outcome is tried for that long.
        result_limit: The longest result in bytes.
        expose_errors: Whether the text of an unexpected exception becomes the detail that the client sees.
    """

    def __init__(
        self,
        registry: HandlerRegistry,
        repository: JobRepository,
        context: Callable[[], AbstractContextManager[Any]],
        *,
        lease: timedelta,
        result_limit: int,
        expose_errors: bool = False,
    ) -> None:
        self._registry = registry
        self._repository = repository
        self._context = context
        self._lease = lease
        self._result_limit = result_limit
        self._expose_errors = expose_errors

    def run(self, claim: Claim) -> None:
        """Run one attempt and record how it ended. Raises nothing, whatever the handler does."""
        self._record(claim, self._attempt(claim))

    def _attempt(self, claim: Claim) -> Outcome:
        try:
            handler = self._registry.get(claim.type)
            with self._context():
                return self._outcome(handler, claim)
        except BaseException as error:  # whatever a handler or a teardown raises ends this attempt, not the worker
            return self._failure(claim, error)

    def _outcome(self, handler: Handler, claim: Claim) -> Outcome:
        payload = load_payload(handler, claim.payload)
        context = JobContext(self._repository, claim, payload, self._lease, self._result_limit)
        value = handler.call(context, payload)
        if handler.options.detached:
            return Left()
        match stored_result(value, self._result_limit):
            case JobError() as error:
                return Failed(error)
            case text:
                return Completed(text)

    def _failure(self, claim: Claim, error: BaseException) -> Outcome:
        match error:
            case JobFailed():
                return Failed(JobError.of(error.title, error.detail, error.code))
            case JobCancelled() | AttemptLost():
                _log.info("job %s: attempt %d stopped: %s", claim.job_id, claim.attempt, error)
                return Left()
        _log.error("job %s (%s): attempt %d raised", claim.job_id, claim.type, claim.attempt, exc_info=error)
        detail = repr_of(error) if self._expose_errors else None
        return Failed(JobError.of(PROCESSING_ERROR, detail, "processing-error"))

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
            case Completed(result):
                written = self._repository.complete(claim.job_id, claim.execution_token, result)
            case Failed(error):
                written = self._repository.fail(claim.job_id, claim.execution_token, error)
            case Left():
                return
        if written is None:
            _log.info("job %s: the outcome of attempt %d came too late", claim.job_id, claim.attempt)

    def _pauses(self) -> Iterator[float]:
        deadline = time.monotonic() + self._lease.total_seconds()
        pause = 0.05
        while True:
            yield pause
            if time.monotonic() >= deadline:
                return
            pause = min(pause * 2, 2.0)


def load_payload(handler: Handler, text: str | None) -> Any:
    """Return what the type's schema loads from the stored JSON, or None for a type without a schema."""
    schema = handler.options.payload_schema
    return None if schema is None else schema.load(payloads.parse(text or payloads.EMPTY))


def repr_of(error: BaseException) -> str:
    """Return a description of `error` even if its own `str()` raises."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # a foreign __str__ may raise anything
        return type(error).__name__
