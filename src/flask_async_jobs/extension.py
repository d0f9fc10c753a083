"""`AsyncJobs`: the object that an application registers, and the Python API of jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, Unpack

from flask import Flask, current_app, request_started
from flask_smorest import Api
from sqlalchemy import MetaData

from flask_async_jobs import models
from flask_async_jobs.api.documents import add_routes
from flask_async_jobs.calls import JobCalls, duration_of
from flask_async_jobs.cli import async_jobs_commands
from flask_async_jobs.config import Settings
from flask_async_jobs.database import Clock
from flask_async_jobs.dispatcher import Dispatcher
from flask_async_jobs.engines import EngineSource, engine_source
from flask_async_jobs.errors import ConfigurationError
from flask_async_jobs.instance import Instance, OwnerLoader
from flask_async_jobs.options import HandlerKeywords
from flask_async_jobs.parts import RepositorySource
from flask_async_jobs.policy import DefaultJobPolicy, JobPolicy
from flask_async_jobs.registry import Handler, HandlerRegistry

EXTENSION = "async_jobs"
Function = TypeVar("Function", bound=Callable[..., Any])


class AsyncJobs(JobCalls):
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
        instance.observe(lambda handler: _check_window(settings, handler))
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

    def _instance(self) -> Instance:
        return self._instance_of(current_app)

    def _instance_of(self, app: Flask) -> Instance:
        instance = app.extensions.get(EXTENSION)
        if not isinstance(instance, Instance) or instance.registry is not self._registry:
            raise RuntimeError("this AsyncJobs is not registered with the application: call jobs.init_app(app)")
        return instance

    # The process

    def start(self, app: Flask | None = None) -> None:
        """Start the dispatcher and the scheduler of this process; nothing if they run.

        A serving process starts by itself with its first request; under gunicorn `post_worker_init` is earlier.

        Raises:
            RuntimeError: There is no `app` and no current application.
        """
        self._instance_of(app or current_app).start()

    def shutdown(self, timeout: timedelta | str | float | None = None, app: Flask | None = None) -> bool:
        """Drain this process: no new claims, `timeout` (default `SHUTDOWN_TIMEOUT`) for running handlers.

        What still runs then is left to recovery. Returns whether every handler ended in time, at the latest about a
        second after the timeout.

        Args:
            timeout: A `timedelta`, ISO 8601 text or seconds.
            app: The application, if it is not the current one.

        Raises:
            ValueError: The timeout is no duration.
            RuntimeError: There is no `app` and no current application.
        """
        return self._instance_of(app or current_app).stop(duration_of("timeout", timeout))

    # Tables

    @property
    def metadata(self) -> MetaData:
        """The library's tables in the default schema, for `target_metadata` and `create_all`."""
        return models.metadata_for()

    def metadata_for(self, schema: str | None = None) -> MetaData:
        """The library's tables in `schema`, the value of `ASYNC_JOBS_SCHEMA`."""
        return models.metadata_for(schema)


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
