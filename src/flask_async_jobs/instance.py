"""The library in one application: the operations behind the Python API, the routes and the commands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from flask_async_jobs.batches import Batches, BatchRequest, BatchSubmission
from flask_async_jobs.dispatcher import Bounded
from flask_async_jobs.errors import OwnerRequired
from flask_async_jobs.events import wait_until
from flask_async_jobs.process import Process
from flask_async_jobs.records import LogEntry
from flask_async_jobs.sessions import AnySession, connection_of, when_ended
from flask_async_jobs.states import ANY_OWNER, AnyOwner, BatchItem, BatchView, CancelResult, Disposition, JobView
from flask_async_jobs.submission import Submission, Submissions, WorkRequest, checked_owner
from flask_async_jobs.subscriptions import Subscription
from flask_async_jobs.watcher import TooManyStreams

OwnerLoader = Callable[[], str | None]


class Instance(Process):
    """One application's jobs (see `api.service.JobService`)."""

    def __init__(
        self, *parts: Any, owner_loader: Callable[[], OwnerLoader | None] = lambda: None, **more: Any
    ) -> None:
        super().__init__(*parts, **more)
        self._owner_loader = owner_loader
        self._waiters = threading.BoundedSemaphore(self.settings.backpressure_max_waiters)

    def after_fork(self) -> None:
        """Forget in a child process what belongs to its parent."""
        super().after_fork()
        self._waiters = threading.BoundedSemaphore(self.settings.backpressure_max_waiters)

    def submit(self, request: WorkRequest, *, session: AnySession | None = None) -> Submission:
        """Answer a submission, and wake this process's dispatcher for a job that was created.

        With `session` the job exists when the session's transaction commits, and nobody is woken before.
        """
        submissions = self.submissions
        if session is not None:
            bound = self.repository.within(connection_of(session, self.engine))
            submissions = Submissions(bound, self.policy, self.settings)
        rejects = self.settings.backpressure == "reject" and self.is_full
        submission = submissions.submit(request, room=not rejects)
        self._announce(submission.disposition, session, self.wake)
        return submission

    def submit_batch(self, request: BatchRequest, *, session: AnySession | None = None) -> BatchSubmission:
        """Answer the submission of a batch as `submit` does, and wake every process if it was created."""
        repository = self.batch_repository
        if session is not None:
            repository = repository.within(connection_of(session, self.engine))
        rejects = self.settings.backpressure == "reject" and self.is_full
        submission = Batches(repository, self.submissions).submit(request, room=not rejects)
        self._announce(submission.disposition, session, self.wake_all)
        return submission

    @staticmethod
    def _announce(disposition: Disposition, session: AnySession | None, wake: Callable[[], None]) -> None:
        if disposition is Disposition.CREATED:
            if session is None:
                wake()
            else:
                when_ended(session, wake)

    def hold(self, submission: Submission) -> None:
        """Wait until a slot takes the job, where `BACKPRESSURE` is `wait`, every slot is taken and it was created.

        At most `BACKPRESSURE_TIMEOUT`, and at most `BACKPRESSURE_MAX_WAITERS` callers at once; more do not wait.
        """
        if self.settings.backpressure != "wait" or submission.disposition is not Disposition.CREATED:
            return
        dispatcher = self.dispatcher
        if not isinstance(dispatcher, Bounded) or not dispatcher.is_full:
            return
        if self._waiters.acquire(blocking=False):
            try:
                dispatcher.wait_until_taken(submission.job.job_id, self.settings.backpressure_timeout)
            finally:
                self._waiters.release()

    def find(self, job_id: UUID, owner: str | AnyOwner = ANY_OWNER) -> JobView | None:
        """Return a job, or None if it is unknown or another owner's."""
        return self.repository.find(job_id, owner)

    def result_of(self, job_id: UUID) -> str | None:
        """Return the stored result of a job as JSON text, or None."""
        return self.repository.result_of(job_id)

    def log_entries(self, job_id: UUID, after: int, most: int) -> list[LogEntry]:
        """Return up to `most` lines of a job's log that come after line `after`."""
        return self.log.entries(job_id, after, most)

    def cancel(
        self, job_id: UUID, owner: str | AnyOwner = ANY_OWNER, session: AnySession | None = None
    ) -> tuple[CancelResult, JobView | None]:
        """Cancel a job, with `session` in its transaction, and return how it stands then."""
        repository = self.repository
        if session is not None:
            repository = repository.within(connection_of(session, self.engine))
            when_ended(session, self.changed)
            when_ended(session, lambda: self.repository.ended([job_id]))
        if job := repository.cancel(job_id, owner):
            return CancelResult.CANCELLED, job
        job = repository.find(job_id, owner)
        return (CancelResult.ALREADY_TERMINAL if job else CancelResult.NOT_FOUND), job

    def find_batch(self, batch_id: UUID, owner: str | AnyOwner = ANY_OWNER) -> BatchView | None:
        """Return a batch, or None if it is unknown or another owner's."""
        return self.batch_repository.find(batch_id, owner)

    def batch_items(self, batch_id: UUID, after: int, most: int, owner: str | AnyOwner) -> list[BatchItem] | None:
        """Return a page of a batch's items, or None if it is unknown or another owner's."""
        return self.batch_repository.items(batch_id, after, most, owner)

    def cancel_batch(self, batch_id: UUID, owner: str | AnyOwner) -> tuple[CancelResult, BatchView | None]:
        """Cancel the active items of a batch, and return how it stands then."""
        cancelled = self.batch_repository.cancel(batch_id, owner)
        batch = self.batch_repository.find(batch_id, owner)
        if batch is None:
            return CancelResult.NOT_FOUND, None
        return (CancelResult.CANCELLED if cancelled else CancelResult.ALREADY_TERMINAL), batch

    def wait(
        self, job_id: UUID, until: Callable[[JobView], bool], timeout: timedelta, *, capped: bool = True
    ) -> JobView | None:
        """Return the first state that satisfies `until` or is terminal, or the last one after `timeout`.

        None: there is no such job, or `capped` and no place to wait in.
        """
        try:
            subscription = self.watcher.subscribe(job_id, capped=capped)
        except TooManyStreams:
            return None
        try:
            job = self.find(job_id)
            return job and wait_until(subscription, job, until, timeout.total_seconds())
        finally:
            subscription.close()

    def subscribe(self, job_id: UUID) -> Subscription[JobView]:
        """Take a place for a stream; see `Watcher.subscribe`."""
        return self.watcher.subscribe(job_id, stream=True)

    def subscribe_to_batch(self, batch_id: UUID) -> Subscription[BatchView]:
        """Take a place for a stream that follows a batch; see `Watcher.subscribe_to_batch`."""
        return self.watcher.subscribe_to_batch(batch_id)

    def owner_of_request(self) -> str | None:
        """Return who makes the current request, by the application's `owner_loader`.

        Raises:
            OwnerRequired: Nobody, and `REQUIRE_OWNER` is on.
        """
        load = self._owner_loader()
        owner = checked_owner(load()) if load else ""
        if owner:
            return owner
        if self.settings.require_owner:
            raise OwnerRequired("this application requires to know who asks")
        return None

    def reader_of_request(self) -> str | AnyOwner:
        """Return whose jobs the current request may see: anybody's where the application knows no owners."""
        owner = self.owner_of_request()
        return ANY_OWNER if self._owner_loader() is None else owner or ""
