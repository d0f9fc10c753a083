"""The changes of a job as events, and following it from a subscription."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from flask_async_jobs.states import JobError, JobStatus, JobView
from flask_async_jobs.subscriptions import S, Subscription


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One change of a job, derived from its state.

    Attributes:
        event: `status`, `progress`, `complete`, `failed` or `cancelled`.
        job: The state.
    """

    event: str
    job: JobView

    @classmethod
    def of(cls, job: JobView) -> JobEvent:
        """Return the event that tells this state."""
        match job.status:
            case JobStatus.COMPLETED:
                return cls("complete", job)
            case JobStatus.FAILED:
                return cls("failed", job)
            case JobStatus.CANCELLED:
                return cls("cancelled", job)
            case JobStatus.PROCESSING if job.percent_complete is not None:
                return cls("progress", job)
        return cls("status", job)

    @property
    def job_id(self) -> UUID:
        """The job."""
        return self.job.job_id

    @property
    def status(self) -> JobStatus:
        """Its state."""
        return self.job.status

    @property
    def percent_complete(self) -> int | None:
        """How much is done."""
        return self.job.percent_complete

    @property
    def attempt(self) -> int:
        """How often it was started."""
        return self.job.attempt

    @property
    def created_at(self) -> datetime:
        """When it was accepted."""
        return self.job.created_at

    @property
    def started_at(self) -> datetime | None:
        """When its latest attempt started."""
        return self.job.started_at

    @property
    def completed_at(self) -> datetime | None:
        """When it ended."""
        return self.job.completed_at

    @property
    def last_updated_at(self) -> datetime:
        """The persisted instant of the change."""
        return self.job.last_updated_at

    @property
    def effect_started(self) -> bool:
        """Whether the work began to have effects."""
        return self.job.effect_started

    @property
    def error(self) -> JobError | None:
        """Why the job failed, as it is shown to the client."""
        return self.job.error

    @property
    def title(self) -> str | None:
        """Why the job failed."""
        return self.job.error.title if self.job.error else None

    @property
    def code(self) -> str | None:
        """The stable code of the failure."""
        return self.job.error.code if self.job.error else None

    @property
    def type(self) -> str:
        """The type of the job."""
        return self.job.type

    @property
    def result(self) -> Any:
        """What the handler of a COMPLETED job returned, as JSON, or None."""
        return self.job.result

    @property
    def result_url(self) -> str | None:
        """Where the result is."""
        return self.job.result_url

    @property
    def batch_id(self) -> UUID | None:
        """The batch that the job is a part of."""
        return self.job.batch_id

    @property
    def revision(self) -> int:
        """The id of the event in a stream."""
        return self.job.revision


def wait_until(
    subscription: Subscription[JobView], job: JobView, until: Callable[[JobView], bool], timeout: float
) -> JobView:
    """Return the first state that satisfies `until` or is terminal, or the last one after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    subscription.begin(job)
    while not (job.status.is_terminal or until(job)):
        state = subscription.next(max(0.0, deadline - time.monotonic()))
        if state is None:
            return job
        job = state
    return job


def follow(subscription: Subscription[S], known: S, deadline: float, heartbeat: float) -> Iterator[S | None]:
    """Give the known state and each later one until the last; None after each `heartbeat` of silence.

    Ends with the terminal state, at `deadline` (as `time.monotonic` counts), or when the place is lost.
    """
    subscription.begin(known)
    yield known
    while not known.status.is_terminal:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        state = subscription.next(min(heartbeat, left))
        if subscription.is_over and state is None:
            return
        known = known if state is None else state
        yield state
