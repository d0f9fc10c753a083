"""What the HTTP edge asks of the rest of the library."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from flask_async_jobs.batches import BatchRequest, BatchSubmission
from flask_async_jobs.config import Settings
from flask_async_jobs.policy import JobPolicy
from flask_async_jobs.records import LogEntry
from flask_async_jobs.registry import Handler, HandlerRegistry
from flask_async_jobs.states import AnyOwner, BatchItem, BatchView, CancelResult, JobView
from flask_async_jobs.submission import Submission, WorkRequest
from flask_async_jobs.subscriptions import Subscription


class JobService(Protocol):
    """The operations on the jobs of one application."""

    @property
    def settings(self) -> Settings:
        """The settings of the application."""
        ...

    @property
    def registry(self) -> HandlerRegistry:
        """The handlers of the application."""
        ...

    @property
    def policy(self) -> JobPolicy:
        """The hints for clients."""
        ...

    def observe(self, observer: Callable[[Handler], None]) -> None:
        """Call `observer` with every handler, those already there and those to come."""
        ...

    def submit(self, request: WorkRequest) -> Submission:
        """Answer a submission and announce a job that was created."""
        ...

    def hold(self, submission: Submission) -> None:
        """Wait until a slot takes a job that was created, as far as `BACKPRESSURE` says so."""
        ...

    def find(self, job_id: UUID, owner: str | AnyOwner) -> JobView | None:
        """Return a job, or None if it is unknown or another owner's."""
        ...

    def wait(self, job_id: UUID, until: Callable[[JobView], bool], timeout: timedelta) -> JobView | None:
        """Return the first state that satisfies `until` or is terminal, or the last one after `timeout`.

        None: there is no place to wait in.
        """
        ...

    def subscribe(self, job_id: UUID) -> Subscription[JobView]:
        """Take a place for a stream; raises what `Watcher.subscribe` does."""
        ...

    def submit_batch(self, request: BatchRequest) -> BatchSubmission:
        """Answer the submission of a batch and announce one that was created."""
        ...

    def find_batch(self, batch_id: UUID, owner: str | AnyOwner) -> BatchView | None:
        """Return a batch, or None if it is unknown or another owner's."""
        ...

    def batch_items(self, batch_id: UUID, after: int, most: int, owner: str | AnyOwner) -> list[BatchItem] | None:
        """Return a page of a batch's items, or None if it is unknown or another owner's."""
        ...

    def cancel_batch(self, batch_id: UUID, owner: str | AnyOwner) -> tuple[CancelResult, BatchView | None]:
        """Cancel the active items of a batch and return how it stands then."""
        ...

    def subscribe_to_batch(self, batch_id: UUID) -> Subscription[BatchView]:
        """Take a place for a stream that follows a batch; raises what `Watcher.subscribe` does."""
        ...

    def result_of(self, job_id: UUID) -> str | None:
        """Return the stored result of a job as JSON text, or None."""
        ...

    def log_entries(self, job_id: UUID, after: int, most: int) -> list[LogEntry]:
        """Return up to `most` lines of a job's log that come after line `after`."""
        ...

    def cancel(self, job_id: UUID, owner: str | AnyOwner) -> tuple[CancelResult, JobView | None]:
        """Cancel a job and return how it stands then."""
        ...

    def owner_of_request(self) -> str | None:
        """Return who makes the current request, or None."""
        ...

    def reader_of_request(self) -> str | AnyOwner:
        """Return whose jobs the current request may see."""
        ...
