"""The timer of the recurring passes, by APScheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from apscheduler.executors.debug import DebugExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.blocking import BlockingScheduler

from flask_async_jobs.errors import StorageUnavailable

STOP_TIMEOUT: Final = 1.0

_log = logging.getLogger("flask_async_jobs")


class Scheduler:
    """Runs passes at intervals on one daemon thread of this process, one after the other.

    A pass that fails is logged and comes again at its next turn; turns that were missed are not made up for.
    """

    def __init__(self) -> None:
        for quiet in ("apscheduler.executors.async_jobs", "flask_async_jobs.scheduler"):
            logging.getLogger(quiet).setLevel(logging.WARNING)  # each pass is told twice at INFO otherwise
        # The executor runs a pass on the scheduler's own thread: the default one has a pool that is joined at exit.
        self._scheduler = _BoundedScheduler(
            daemon=True,
            timezone="UTC",
            logger=logging.getLogger("flask_async_jobs.scheduler"),
            executors={"async_jobs": DebugExecutor()},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def every(self, interval: timedelta, name: str, one_pass: Callable[[], Any]) -> None:
        """Run `one_pass` each `interval`, the first time one interval after `start`."""
        self._scheduler.add_job(
            _survived,
            "interval",
            seconds=interval.total_seconds(),
            args=(name, one_pass),
            id=name,
            executor="async_jobs",
        )

    def start(self) -> None:
        """Start the thread."""
        self._scheduler.start()

    def stop(self) -> None:
        """Start no further pass, and give one that runs a second to end."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)


class _BoundedScheduler(BackgroundScheduler):  # type: ignore[misc]
    """A `BackgroundScheduler` whose `shutdown` does not wait for ever for a pass that hangs."""

    def shutdown(self, wait: bool = True) -> None:
        BlockingScheduler.shutdown(self, wait)
        self._thread.join(STOP_TIMEOUT)


def _survived(name: str, one_pass: Callable[[], Any]) -> None:
    try:
        one_pass()
    except StorageUnavailable:
        _log.debug("%s: the database cannot be asked; the next turn tries again", name)
    except Exception:
        _log.exception("%s failed; the next turn tries again", name)
