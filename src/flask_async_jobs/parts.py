"""What the library makes for one application, each part when it is first needed."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, cast

from flask import Flask
from sqlalchemy import Engine

from flask_async_jobs.batch_repository import BatchRepository
from flask_async_jobs.config import Settings
from flask_async_jobs.database import Clock
from flask_async_jobs.dispatcher import Dispatcher
from flask_async_jobs.log import JobLog
from flask_async_jobs.policy import JobPolicy
from flask_async_jobs.purge import Purge
from flask_async_jobs.recovery import Recovery
from flask_async_jobs.registry import Handler, HandlerRegistry
from flask_async_jobs.reports import Reports
from flask_async_jobs.repository import JobRepository
from flask_async_jobs.submission import Submissions
from flask_async_jobs.watcher import Watcher

T = TypeVar("T")
RepositorySource = JobRepository | Callable[..., JobRepository]

_all: weakref.WeakSet[Parts] = weakref.WeakSet()


class Parts:
    """The job store of one application and what works on it. Connects to nothing before it is asked to."""

    def __init__(
        self,
        app: Flask,
        settings: Settings,
        registry: HandlerRegistry,
        policy: JobPolicy,
        engine: Callable[[], Engine],
        *,
        repository: RepositorySource | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.app = app
        self.settings = settings
        self.registry = registry
        self.policy = policy
        self._engine_source = engine
        self._repository_source = repository or JobRepository
        self._clock = clock
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}
        self._observers: list[Callable[[Handler], None]] = []
        self._forked = False
        _all.add(self)

    def observe(self, observer: Callable[[Handler], None]) -> None:
        """Call `observer` with every handler, as long as this application is there."""
        self.registry.observe(observer)
        self._observers.append(observer)

    @property
    def dispatcher(self) -> Dispatcher | None:
        """The dispatcher that runs in this process, or None."""
        return None

    @property
    def engine(self) -> Engine:
        """The engine, found when it is first needed."""
        return self._once("engine", self._find_engine)

    @property
    def repository(self) -> JobRepository:
        """The job store."""
        return self._once("repository", self._new_repository)

    @property
    def batch_repository(self) -> BatchRepository:
        """The store of batches."""
        return self._once("batch_repository", lambda: BatchRepository(self.repository))

    @property
    def log(self) -> JobLog:
        """The lines that jobs have logged."""
        return self._once("log", lambda: JobLog(self.repository, self.settings.log_max_bytes))

    @property
    def reports(self) -> Reports:
        """What writes the reports of attempts."""
        return self._once("reports", self._new_reports)

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
        """Forget in a child process what belongs to its parent: locks and connections."""
        self._lock = threading.RLock()
        self._forked = True
        if engine := self._made.get("engine"):
            self._made.clear()
            self._made["engine"] = engine
            engine.dispose(close=False)

    def _new_repository(self) -> JobRepository:
        repository = self._repository_source
        if not isinstance(repository, JobRepository):
            repository = repository(self.engine, schema=self.settings.schema, clock=self._clock)
        repository.changed = self.changed
        return repository

    def changed(self) -> None:
        """Let those who follow jobs in this process look soon: one has changed. Returns at once."""
        if watcher := self._made.get("watcher"):
            watcher.changed()

    def _new_watcher(self) -> Watcher:
        settings = self.settings
        return Watcher(
            self.repository,
            self.batch_repository,
            interval=settings.sse_poll_interval,
            most=settings.sse_max_streams,
            most_of_a_job=settings.sse_max_subscribers,
            pending=settings.sse_max_pending_events,
        )

    def _new_reports(self) -> Reports:
        reports = Reports(self.log, self.settings.processing_lease)
        self.repository.ended = reports.note_ended
        return reports

    def _new_recovery(self) -> Recovery:
        return Recovery(self.repository, self.registry.rules, self.settings, lambda: self.dispatcher)

    def _new_purge(self) -> Purge:
        return Purge(self.repository, self.batch_repository, self.registry.rules, self.settings.retention)

    @property
    def purge(self) -> Purge:
        """The pass over jobs whose retention is over."""
        return self._once("purge", self._new_purge)

    @property
    def watcher(self) -> Watcher:
        """What follows jobs in this process."""
        return self._once("watcher", self._new_watcher)


def _after_fork() -> None:
    for parts in list(_all):
        parts.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
