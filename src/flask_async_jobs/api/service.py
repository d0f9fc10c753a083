"""What the HTTP edge asks of the rest of the library."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol
from uuid import UUID

from flask_async_jobs.config import Settings
from flask_async_jobs.policy import JobPolicy
from flask_async_jobs.registry import HandlerRegistry
from flask_async_jobs.states import AnyOwner, CancelResult, JobView
from flask_async_jobs.submission import Submission, WorkRequest
from flask_async_jobs.watcher import Subscription


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

    def subscribe(self, job_id: UUID) -> Subscription:
        """Take a place for a stream; raises what `Watcher.subscribe` does."""
        ...

    def result_of(self, job_id: UUID) -> str | None:
        """Return the stored result of a job as JSON text, or None."""
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
