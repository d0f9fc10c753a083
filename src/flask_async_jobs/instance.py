"""The library in one application: what `init_app` makes, and what a serving process starts."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast
from uuid import UUID

from flask import Flask
from sqlalchemy import Engine

from flask_async_jobs.config import Settings
from flask_async_jobs.contexts import handler_context, watch_sessions
from flask_async_jobs.database import Clock
from flask_async_jobs.dispatcher import Bounded, Dispatcher, ThreadDispatcher
from flask_async_jobs.errors import ConfigurationError, OwnerRequired
from flask_async_jobs.events import Subscription, TooManyStreams, Watcher, wait_until
from flask_async_jobs.executor import Executor
from flask_async_jobs.policy import JobPolicy
from flask_async_jobs.purge import Purge
from flask_async_jobs.recovery import Recovery
from flask_async_jobs.registry import Handler, HandlerRegistry
from flask_async_jobs.repository import JobRepository
from flask_async_jobs.scheduler import Scheduler
from flask_async_jobs.sessions import AnySession, connection_of, when_ended
from flask_async_jobs.states import ANY_OWNER, AnyOwner, CancelResult, Disposition, JobView
from flask_async_jobs.submission import Payload, Submission, Submissions, checked_owner

_log = logging.getLogger("flask_async_jobs")

T = TypeVar("T")
OwnerLoader = Callable[[], str | None]
RepositorySource = JobRepository | Callable[..., JobRepository]


_instances: weakref.WeakSet[Instance] = weakref.WeakSet()


class Instance:
    """One application's jobs. Everything that needs the database is made when it is first used."""

    def __init__(
        self,
        app: Flask,
        settings: Settings,
        registry: HandlerRegistry,
        policy: JobPolicy,
        engine: Callable[[], Engine],
        *,
        repository: RepositorySource | None = None,
        dispatcher: Dispatcher | None = None,
        clock: Clock | None = None,
        owner_loader: Callable[[], OwnerLoader | None] = lambda: None,
    ) -> None:
        self.app = app
        self.settings = settings
        self.registry = registry
        self.policy = policy
        self._engine_source = engine
        self._repository_source = repository or JobRepository
        self._given_dispatcher = dispatcher
        self._clock = clock
        self._owner_loader = owner_loader
        self._lock = threading.RLock()
        self._waiters = threading.BoundedSemaphore(settings.backpressure_max_waiters)
        self._made: dict[str, Any] = {}
        self._forked = False
        _instances.add(self)
        self._running: _Running | None = None

    @property
    def engine(self) -> Engine:
        """The engine, found when it is first needed."""
        return self._once("engine", self._find_engine)

    @property
    def repository(self) -> JobRepository:
        """The job store."""
        return self._once("repository", self._new_repository)

    @property
    def submissions(self) -> Submissions:
        """What answers submissions."""
        return self._once("submissions", lambda: Submissions(self.repository, self.policy, self.settings))

    @property
    def recovery(self) -> Recovery:
        """The pass over stranded jobs."""
        return self._once("recovery", self._new_recovery)

    def _once(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` gave the first time, also when several threads ask first."""
        try:
            return cast(T, self._made[name])
        except KeyError:
            with self._lock:
                if name not in self._made:
                    self._made[name] = make()
                return cast(T, self._made[name])

    def _find_engine(self) -> Engine:
        engine = self._engine_source()
        if self._forked:  # its connections, if the parent had any, are the parent's
            engine.dispose(close=False)
        return engine

    def after_fork(self) -> None:
        """Forget in a child process what belongs to its parent: threads, locks and connections."""
        self._lock = threading.RLock()
        self._waiters = threading.BoundedSemaphore(self.settings.backpressure_max_waiters)
        self._running = None
        self._forked = True
        if engine := self._made.get("engine"):
            self._made.clear()
            self._made["engine"] = engine
            engine.dispose(close=False)

    def _new_repository(self) -> JobRepository:
        if isinstance(self._repository_source, JobRepository):
            return self._repository_source
        return self._repository_source(self.engine, schema=self.settings.schema, clock=self._clock)

    def _new_watcher(self) -> Watcher:
        settings = self.settings
        watcher = Watcher(
            self.repository,
            interval=settings.sse_poll_interval,
            most=settings.sse_max_streams,
            most_of_a_job=settings.sse_max_subscribers,
            pending=settings.sse_max_pending_events,
        )
        self.repository.changed = watcher.changed
        return watcher

    def _new_recovery(self) -> Recovery:
        return Recovery(self.repository, self.registry.rules, self.settings, lambda: self.dispatcher)

    @property
    def purge(self) -> Purge:
        """The pass over jobs whose retention is over."""
        return self._once("purge", lambda: Purge(self.repository, self.registry.rules, self.settings.retention))

    @property
    def watcher(self) -> Watcher:
        """What follows jobs in this process."""
        return self._once("watcher", self._new_watcher)

    # Operations (see `api.service.JobService`)

    def submit(
        self,
        handler: Handler,
        payload: Payload,
        *,
        idempotency_key: str | None = None,
        owner: str = "",
        force: bool = False,
        run_at: datetime | None = None,
        session: AnySession | None = None,
    ) -> Submission:
        """Answer a submission, and wake this process's dispatcher for a job that was created.

        With `session` the job exists when the session's transaction commits, and nobody is woken before.
        """
        submissions = self.submissions
        if session is not None:
            bound = self.repository.within(connection_of(session, self.engine))
            submissions = Submissions(bound, self.policy, self.settings)
        submission = submissions.submit(
            handler,
            payload,
            idempotency_key=idempotency_key,
            owner=owner,
            force=force,
            run_at=run_at,
            room=not (self.settings.backpressure == "reject" and self._is_full()),
        )
        if submission.disposition is Disposition.CREATED:
            if session is None:
                self.wake()
            else:
                when_ended(session, self.wake)
        return submission

    def wake(self) -> None:
        """Let this process's dispatcher look for due jobs, if it has one."""
        if dispatcher := self.dispatcher:
            dispatcher.wake()

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

    def _is_full(self) -> bool:
        dispatcher = self.dispatcher
        return isinstance(dispatcher, Bounded) and dispatcher.is_full

    def find(self, job_id: UUID, owner: str | AnyOwner = ANY_OWNER) -> JobView | None:
        """Return a job, or None if it is unknown or another owner's."""
        return self.repository.find(job_id, owner)

    def cancel(
        self, job_id: UUID, owner: str | AnyOwner = ANY_OWNER, session: AnySession | None = None
    ) -> tuple[CancelResult, JobView | None]:
        """Cancel a job, with `session` in its transaction, and return how it stands then."""
        repository = self.repository
        if session is not None:
            repository = repository.within(connection_of(session, self.engine))
        if job := repository.cancel(job_id, owner):
            return CancelResult.CANCELLED, job
        job = repository.find(job_id, owner)
        return (CancelResult.ALREADY_TERMINAL if job else CancelResult.NOT_FOUND), job

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

    def subscribe(self, job_id: UUID) -> Subscription:
        """Take a place for a stream; see `Watcher.subscribe`."""
        return self.watcher.subscribe(job_id, stream=True)

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

    # The process

    @property
    def dispatcher(self) -> Dispatcher | None:
        """The dispatcher that runs in this process, or None."""
        running = self._running
        return running.dispatcher if running and running.pid == os.getpid() else None

    @property
    def started(self) -> bool:
        """Whether this process was started, and not a parent that it was forked from."""
        running = self._running
        return running is not None and running.pid == os.getpid()

    def process_stats(self) -> dict[str, int]:
        """Return the slots of this process and how many are taken, and what happened to its attempts."""
        dispatcher = self.dispatcher
        return {
            "slots": self.settings.processing_concurrency_limit if dispatcher else 0,
            "running": len(dispatcher.running) if dispatcher else 0,
            "attemptsLost": self.repository.refused.value,
            "overdueThreads": len(dispatcher.overdue) if isinstance(dispatcher, Bounded) else 0,
        }

    def start(self, *, processing: bool | None = None) -> None:
        """Start the dispatcher and the scheduler of this process; nothing if they run.

        Args:
            processing: Whether to run handlers, if not as `PROCESSING_ENABLED` says.
        """
        if self.started:
            return
        with self._lock:
            if self.started:
                return
            self.registry.fix()
            self._check_handlers()
            watch_sessions(self.app)
            self._check_pool()
            self._running = _Running(self._new_dispatcher(processing), self._new_scheduler())
            self._running.start()
            _stop_at_exit(self)

    def stop(self, timeout: timedelta | None = None) -> bool:
        """Drain this process: no new claims, `timeout` for running handlers. Returns whether all ended."""
        with self._lock:
            running, self._running = self._running, None
            if watcher := self._made.pop("watcher", None):
                watcher.stop()
            if running is None or running.pid != os.getpid():
                return True
            return running.stop(self.settings.shutdown_timeout if timeout is None else timeout)

    def _check_pool(self) -> None:
        capacity, handlers = self.repository.database.gate.capacity, self.settings.processing_concurrency_limit
        if capacity is not None and capacity <= handlers and self.settings.processing_enabled:
            _log.warning(
                "the pool has %d connections for %d handlers: each may hold one, and its reports need another; "
                "raise pool_size and max_overflow above ASYNC_JOBS_PROCESSING_CONCURRENCY_LIMIT, or lower that",
                capacity,
                handlers,
            )

    def _check_handlers(self) -> None:
        atomic = [handler.type for handler in self.registry if handler.options.atomic]
        if atomic and "sqlalchemy" not in self.app.extensions:
            raise ConfigurationError(f"{atomic[0]!r} is atomic, and there is no db.session: use Flask-SQLAlchemy")

    def _new_dispatcher(self, processing: bool | None) -> Dispatcher | None:
        settings = self.settings
        if not (settings.processing_enabled if processing is None else processing):
            return None
        if self._given_dispatcher is not None:
            return self._given_dispatcher
        if self.repository.database.is_memory:
            raise ConfigurationError(
                "an SQLite database in memory belongs to one connection, and jobs run on others: "
                "use a file, for example 'sqlite:///jobs.sqlite'"
            )
        executor = Executor(
            self.registry,
            self.repository,
            lambda: handler_context(self.app),
            lease=settings.processing_lease,
            result_limit=settings.result_max_bytes,
            expose_errors=settings.expose_errors,
        )
        return ThreadDispatcher(
            self.repository,
            self.registry.rules,
            executor.run,
            limit=settings.processing_concurrency_limit,
            poll_interval=settings.processing_poll_interval,
            lease=settings.processing_lease,
        )

    def _new_scheduler(self) -> Scheduler:
        scheduler = Scheduler()
        if self.settings.recovery_enabled:
            scheduler.every(self.settings.recovery_scan_interval, "recovery", self.recovery.sweep)
        if self.settings.purge_enabled:
            scheduler.every(self.settings.purge_interval, "purge", self.purge.sweep)
        return scheduler


class _Running:
    """The threads of one process."""

    def __init__(self, dispatcher: Dispatcher | None, scheduler: Scheduler) -> None:
        self.pid = os.getpid()
        self.dispatcher = dispatcher
        self._scheduler = scheduler

    def start(self) -> None:
        if self.dispatcher:
            self.dispatcher.start()
        self._scheduler.start()

    def stop(self, timeout: timedelta) -> bool:
        self._scheduler.stop()
        return self.dispatcher.stop(timeout) if self.dispatcher else True


def _after_fork() -> None:
    for instance in list(_instances):
        instance.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _stop_at_exit(instance: Instance) -> None:
    reference = weakref.ref(instance)

    def stop() -> None:
        if (alive := reference()) is not None:
            alive.stop()

    atexit.register(stop)
