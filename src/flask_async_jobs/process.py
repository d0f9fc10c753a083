"""The life of one process: its dispatcher and its scheduler, from the start to the drain."""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from datetime import timedelta
from typing import Any, Final

from flask_async_jobs.api.results import check_result_url
from flask_async_jobs.contexts import handler_context, watch_sessions
from flask_async_jobs.dispatcher import Bounded, Dispatcher, ThreadDispatcher
from flask_async_jobs.errors import ConfigurationError
from flask_async_jobs.executor import Executor
from flask_async_jobs.notifications import CHANGED, DUE, Notifier, can_notify
from flask_async_jobs.parts import Parts
from flask_async_jobs.scheduler import Scheduler

GRACE: Final = 1.0
"""Seconds that statements which are under way get when handlers have had their time."""

_log = logging.getLogger("flask_async_jobs")


class Process(Parts):
    """The threads of one application in this process."""

    def __init__(self, *parts: Any, dispatcher: Dispatcher | None = None, **more: Any) -> None:
        super().__init__(*parts, **more)
        self._given_dispatcher = dispatcher
        self._running: _Running | None = None

    def after_fork(self) -> None:
        """Forget in a child process what belongs to its parent: threads, locks and connections."""
        super().after_fork()
        self._running = None

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
            dispatcher = self._new_dispatcher(processing)
            if dispatcher is not None:
                self._check_pool()
            running = _Running(dispatcher, self._new_scheduler(), self._new_notifier())
            running.start()
            self._running = running
            _stop_at_exit(self)

    def stop(self, timeout: timedelta | None = None) -> bool:
        """Drain this process: no new claims, `timeout` for running handlers. Returns whether all ended.

        Whatever else is under way gets `GRACE` together.
        """
        with self._lock:
            own, self._running = self._running if self.started else None, None
            watcher, reports = self._made.pop("watcher", None), self._made.get("reports")
            if watcher:
                watcher.stop()
            try:
                return own.drain(self.settings.shutdown_timeout if timeout is None else timeout) if own else True
            finally:
                deadline = time.monotonic() + GRACE
                if own and reports:
                    reports.stop(GRACE)
                for part in (watcher, *(own.threads if own else ())):
                    if part:
                        part.join(max(0.0, deadline - time.monotonic()))

    def _check_pool(self) -> None:
        capacity, handlers = self.repository.database.gate.capacity, self.settings.processing_concurrency_limit
        if capacity is not None and capacity <= handlers:
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
        for handler in self.registry if self.settings.web_enabled else ():
            check_result_url(self.app, handler)

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
            self.reports,
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

    def _new_notifier(self) -> Notifier | None:
        if not (self.settings.notify_enabled and can_notify(self.engine)):
            return None
        return Notifier(self.engine, self.settings.schema, self._heard)

    def _heard(self, what: str) -> None:
        if what == CHANGED:
            super().changed()
        elif dispatcher := self.dispatcher:
            dispatcher.wake()

    def changed(self) -> None:
        """Let those who follow jobs look soon, in this process and in the others. Returns at once."""
        super().changed()
        self._tell(CHANGED)

    def wake(self) -> None:
        """Let this process's dispatcher look for due jobs; without a free slot, those of the other processes."""
        if dispatcher := self.dispatcher:
            dispatcher.wake()
        if dispatcher is None or self.is_full:
            self._tell(DUE)

    def wake_all(self) -> None:
        """Let the dispatchers of every process look: there are more due jobs than one may have slots for."""
        if dispatcher := self.dispatcher:
            dispatcher.wake()
        self._tell(DUE)

    def _tell(self, what: str) -> None:
        running = self._running
        if running is not None and running.notifier is not None:
            running.notifier.tell(what)

    @property
    def is_full(self) -> bool:
        """Whether a handler runs in every slot of this process."""
        dispatcher = self.dispatcher
        return isinstance(dispatcher, Bounded) and dispatcher.is_full


class _Running:
    """The threads of one process."""

    def __init__(self, dispatcher: Dispatcher | None, scheduler: Scheduler, notifier: Notifier | None) -> None:
        self.pid = os.getpid()
        self.dispatcher = dispatcher
        self.notifier = notifier
        self._scheduler = scheduler

    def start(self) -> None:
        if self.dispatcher:
            self.dispatcher.start()
        self._scheduler.start()
        if self.notifier:
            self.notifier.start()

    @property
    def threads(self) -> tuple[Scheduler, Notifier | None]:
        """What may still be in the middle of something after the drain."""
        return self._scheduler, self.notifier

    def drain(self, timeout: timedelta) -> bool:
        """Begin nothing more, give handlers `timeout`, and return whether all of them ended."""
        self._scheduler.stop()
        try:
            return self.dispatcher.stop(timeout) if self.dispatcher else True
        finally:
            if self.notifier:
                self.notifier.stop()


def _stop_at_exit(process: Process) -> None:
    reference = weakref.ref(process)

    def stop() -> None:
        if (alive := reference()) is not None:
            alive.stop()

    atexit.register(stop)
