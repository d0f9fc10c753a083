"""`AsyncJobs`: the object that an application registers, and the Python API of jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar, Unpack
from uuid import UUID

from flask import Flask, Response, current_app, request_started
from flask_smorest import Api
from sqlalchemy import MetaData

from flask_async_jobs import models, payloads
from flask_async_jobs.api.answers import accepted
from flask_async_jobs.api.documents import add_routes
from flask_async_jobs.api.urls import urls_of
from flask_async_jobs.cli import async_jobs_commands
from flask_async_jobs.config import Refused, Settings, duration
from flask_async_jobs.database import Clock
from flask_async_jobs.dispatcher import Dispatcher
from flask_async_jobs.engines import EngineSource, engine_source
from flask_async_jobs.errors import ConfigurationError, InvalidPayload
from flask_async_jobs.events import JobEvent, follow
from flask_async_jobs.handlers import JobReporter
from flask_async_jobs.instance import Instance, OwnerLoader, RepositorySource
from flask_async_jobs.options import HandlerKeywords
from flask_async_jobs.policy import DefaultJobPolicy, JobPolicy
from flask_async_jobs.registry import Handler, HandlerRegistry
from flask_async_jobs.sessions import AnySession
from flask_async_jobs.states import ANY_OWNER, AnyOwner, CancelResult, Disposition, JobStatus, JobView
from flask_async_jobs.submission import (
    Payload,
    Submission,
    accept_payload,
    checked_owner,
    read_idempotency_key,
)

EXTENSION = "async_jobs"
_HEARTBEAT = 3_600.0
Function = TypeVar("Function", bound=Callable[..., Any])


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


class AsyncJobs:
    """Asynchronous request-reply on the database that the application has.

    Make one at module level, register handlers with it, and call `init_app` in the application factory. One object
    can serve several applications; each has its own settings, database and threads. Nothing connects to the
    database, and no thread starts, before the application serves its first request or `start` is called.
    """

    def __init__(self, app: Flask | None = None, **options: Any) -> None:
        self._registry = HandlerRegistry()
        self._owner_loader: OwnerLoader | None = None
        if app is not None:
            self.init_app(app, **options)

    def init_app(
        self,
        app: Flask,
        *,
        engine: EngineSource | None = None,
        api: Api | None = None,
        policy: JobPolicy | None = None,
        dispatcher: Dispatcher | None = None,
        repository: RepositorySource | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Register the library with an application. Connects to nothing and starts nothing.

        Args:
            app: The application; its configuration keys start with `ASYNC_JOBS_`.
            engine: An SQLAlchemy engine, or a callable that gives one and is called in an application context.
                Without it the engine of Flask-SQLAlchemy is used, or one is made from `ASYNC_JOBS_DATABASE_URL`.
            api: The application's own `flask_smorest.Api`, already initialised; the routes appear in its document.
            policy: Decides `Retry-After`, `Expires` and freshness windows in place of the settings.
            dispatcher: Runs the jobs of a process in place of the library's threads.
            repository: A `JobRepository`, or a subclass of it to be made with the engine.
            clock: Gives every instant in place of the database's clock: a callable that returns an aware datetime.

        Raises:
            ConfigurationError: A setting, a handler's option or an argument makes no sense.
        """
        if EXTENSION in app.extensions:
            raise ConfigurationError(
                f"the application {app.name!r} has asynchronous jobs already: call init_app once"
            )
        settings = Settings.from_mapping(app.config)
        instance = Instance(
            app,
            settings,
            self._registry,
            policy or DefaultJobPolicy(settings),
            engine_source(app, engine, settings),
            repository=repository,
            dispatcher=dispatcher,
            clock=clock,
            owner_loader=lambda: self._owner_loader,
        )
        self._registry.observe(lambda handler: _check_window(settings, handler))
        if settings.web_enabled:
            add_routes(app, instance, api)
        app.extensions[EXTENSION] = instance
        app.cli.add_command(async_jobs_commands)
        request_started.connect(_start_if_serving, app)

    # Handlers

    def handler(self, type: str, **options: Unpack[HandlerKeywords]) -> Callable[[Function], Function]:
        """Return a decorator that registers a function as the handler of `type` and leaves it as it is.

        The function takes `()`, `(ctx)` or `(ctx, payload)`. The options are those of `HandlerOptions`.

        Raises:
            ConfigurationError: The type, an option or the signature makes no sense, or the type is taken.
            RuntimeError: The application already served a request.
        """

        def register(function: Function) -> Function:
            self.register(type, function, **options)
            return function

        return register

    def register(self, type: str, function: Callable[..., Any], **options: Unpack[HandlerKeywords]) -> None:
        """Register the handler of `type`; see `handler`."""
        self._registry.register(type, function, dict(options))

    def owner_loader(self, function: OwnerLoader) -> OwnerLoader:
        """Register what tells the owner of the current request: a function that returns text or None.

        With a loader every route sees only the jobs of its owner, and keys, freshness and single-flight are the
        owner's own.
        """
        self._owner_loader = function
        return function

    # Jobs

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
        instance = _current(self)
        handler = instance.registry.get(type)
        if run_at is not None and run_at.tzinfo is None:
            raise ValueError(f"run_at is {run_at!r}: give an aware datetime")
        submission = instance.submit(
            handler,
            _payload(handler, payload, instance.settings.payload_max_bytes),
            idempotency_key=None if idempotency_key is None else read_idempotency_key(idempotency_key),
            owner=checked_owner(owner),
            force=force,
            run_at=run_at,
            session=session,
        )
        return SubmittedJob.of(submission)

    def accepted(self, submitted: SubmittedJob) -> Response:
        """Return the 202 response to a submission, for a view of the application's own.

        Raises:
            RuntimeError: The application has no routes of the library.
        """
        instance = _current(self)
        if not instance.settings.web_enabled:
            raise RuntimeError("ASYNC_JOBS_WEB_ENABLED is off: there is no status route for a response to name")
        return accepted(instance, Submission(submitted.job, submitted.disposition))

    def get(self, job_id: UUID | str, *, owner: str | AnyOwner | None = ANY_OWNER) -> JobView | None:
        """Return a job with its result, or None if it is unknown or another owner's."""
        repository = _current(self).repository
        known = _known(job_id)
        job = None if known is None else repository.find(known, _scope(owner))
        if job is None or job.status is not JobStatus.COMPLETED:
            return job
        text = repository.result_of(job.job_id)
        return job if text is None else replace(job, result=payloads.parse(text))

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
        return _current(self).cancel(known, _scope(owner), session)[0]

    def wait(self, job_id: UUID | str, timeout: timedelta | str | float) -> JobView | None:
        """Return the job when it has ended, or as it stands after `timeout`; None if there is no such job.

        Holds no connection; waits with all other waiters and streams of the process on one query an interval.

        Args:
            job_id: The job.
            timeout: A `timedelta`, ISO 8601 text or seconds.
        """
        known, limit = _known(job_id), _duration("timeout", timeout)
        if known is None or limit is None:
            return None
        _current(self).wait(known, lambda job: job.status.is_terminal, limit, capped=False)
        return self.get(known)

    def watch(self, job_id: UUID | str) -> Iterator[JobEvent]:
        """Give the state of a job as an event, and each change of it until it has ended; nothing if there is none.

        Holds no connection between two events. Closing the iterator gives its place back.
        """
        instance, known = _current(self), _known(job_id)
        if known is None:
            return
        subscription = instance.watcher.subscribe(known, capped=False)
        try:
            job = instance.find(known)
            if job is not None:
                yield from (event for event in follow(subscription, job, math.inf, _HEARTBEAT) if event)
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
        instance, settings = _current(self), _current(self).settings
        token = None if execution_token is None else _uuid(execution_token)
        if token is None:
            _require_single_attempt(instance, _uuid(job_id))
        return JobReporter(
            instance.repository, _uuid(job_id), token, settings.processing_lease, settings.result_max_bytes
        )

    def last_completed_at(self, type: str, payload: Any = None, owner: str | None = None) -> datetime | None:
        """Return when this work (type, owner and payload) last completed, or None."""
        instance = _current(self)
        handler = instance.registry.get(type)
        accepted = _payload(handler, payload, instance.settings.payload_max_bytes)
        key = instance.submissions.work_key(handler, checked_owner(owner), accepted.fingerprint)
        return instance.repository.last_completed_at(key)

    # The process

    def start(self, app: Flask | None = None) -> None:
        """Start the dispatcher and the scheduler of this process; nothing if they run.

        A serving process starts by itself with its first request; under gunicorn `post_worker_init` is earlier.

        Raises:
            RuntimeError: There is no `app` and no current application.
        """
        _current(self, app).start()

    def shutdown(self, timeout: timedelta | str | float | None = None, app: Flask | None = None) -> bool:
        """Drain this process: no new claims, `timeout` (default `SHUTDOWN_TIMEOUT`) for running handlers.

        What still runs then is left to recovery. Returns whether every handler ended in time.

        Args:
            timeout: A `timedelta`, ISO 8601 text or seconds.
            app: The application, if it is not the current one.

        Raises:
            ValueError: The timeout is no duration.
            RuntimeError: There is no `app` and no current application.
        """
        return _current(self, app).stop(_duration("timeout", timeout))

    def recover(self) -> int:
        """Make one pass over stranded jobs and return how many were acted on. Harmless at any time."""
        return _current(self).recovery.sweep()

    def purge(self, older_than: timedelta | str | float | None = None) -> int:
        """Make one pass over jobs whose retention is over, and return how many were removed.

        Args:
            older_than: How long ago a job must have ended: a `timedelta`, ISO 8601 text or seconds. Never less than
                `RETENTION`, which is the default: until then the job's `Expires` was announced.

        Raises:
            ValueError: `older_than` is no duration.
        """
        return _current(self).purge.sweep(_duration("older_than", older_than))

    # Tables

    @property
    def metadata(self) -> MetaData:
        """The library's tables in the default schema, for `target_metadata` and `create_all`."""
        return models.metadata_for()

    def metadata_for(self, schema: str | None = None) -> MetaData:
        """The library's tables in `schema`, the value of `ASYNC_JOBS_SCHEMA`."""
        return models.metadata_for(schema)


def _current(jobs: AsyncJobs, app: Flask | None = None) -> Instance:
    application = app or current_app
    instance = application.extensions.get(EXTENSION)
    if not isinstance(instance, Instance) or instance.registry is not jobs._registry:
        raise RuntimeError("this AsyncJobs is not registered with the application: call jobs.init_app(app)")
    return instance


def _start_if_serving(app: Flask, **extra: Any) -> None:
    instance: Instance = app.extensions[EXTENSION]
    instance.registry.fix()
    instance.engine  # noqa: B018 - found before any view uses it: a child process must not use its parent's connections
    automatic = instance.settings.auto_start
    if automatic if automatic is not None else not app.testing:
        instance.start()


def _check_window(settings: Settings, handler: Handler) -> None:
    if handler.options.freshness is not None and handler.type not in settings.freshness_per_type:
        settings.check_window(f"the option freshness of {handler.type!r}", handler.options.freshness)


def _payload(handler: Handler, value: Any, limit: int) -> Payload:
    if value is None:
        return accept_payload(handler, None, limit)
    try:
        text = payloads.encode(value)
    except (payloads.NotJson, RecursionError) as error:
        raise InvalidPayload(f"the payload cannot be stored: {error}") from error
    return accept_payload(handler, text, limit)


def _require_single_attempt(instance: Instance, job_id: UUID) -> None:
    job = instance.find(job_id)
    if job is None:
        return
    if job.type not in instance.registry or instance.registry.get(job.type).rules.max_attempts > 1:
        raise ValueError(f"give the execution token: jobs of type {job.type!r} may have more than one attempt")


def _duration(name: str, value: timedelta | str | float | None) -> timedelta | None:
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
