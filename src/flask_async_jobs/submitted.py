"""The answers to submissions from Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from flask_async_jobs.api.urls import urls_of, urls_of_batch
from flask_async_jobs.batches import BatchSubmission
from flask_async_jobs.states import Disposition, JobStatus, JobView
from flask_async_jobs.submission import Submission


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """The answer to a submission. The URLs are None where the application has no routes of the library."""

    job_id: UUID
    status: JobStatus
    disposition: Disposition
    job: JobView
    status_url: str | None = None
    events_url: str | None = None
    log_url: str | None = None
    operation_url: str | None = None
    cancel_url: str | None = None

    @classmethod
    def of(cls, submission: Submission) -> SubmittedJob:
        """Build the answer, with URLs for the current request or application."""
        job, urls = submission.job, urls_of(submission.job.job_id)
        answer = cls(job.job_id, job.status, submission.disposition, job)
        if urls is None:
            return answer
        return cls(
            job.job_id,
            job.status,
            submission.disposition,
            job,
            status_url=urls.status,
            events_url=urls.events,
            log_url=urls.log,
            operation_url=urls.operation,
            cancel_url=urls.cancel,
        )


@dataclass(frozen=True, slots=True)
class SubmittedBatch:
    """The answer to the submission of a batch. The URLs are None where there are no routes of the library.

    Attributes:
        disposition: `created`, or `replayed`: the batch that the idempotency key created.
    """

    batch_id: UUID
    status: JobStatus
    disposition: Disposition
    total: int
    submitted_at: datetime
    status_url: str | None = None
    items_url: str | None = None
    events_url: str | None = None

    @classmethod
    def of(cls, submission: BatchSubmission) -> SubmittedBatch:
        """Build the answer, with URLs for the current request or application."""
        batch, urls = submission.batch, urls_of_batch(submission.batch.batch_id)
        answer = cls(batch.batch_id, batch.status, submission.disposition, batch.total, batch.submitted_at)
        if urls is None:
            return answer
        return replace(answer, status_url=urls.status, items_url=urls.items, events_url=urls.events)
