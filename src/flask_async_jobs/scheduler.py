"""The timer of the recurring passes, by APScheduler."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from queue import SimpleQueue
from typing import Any, Final

from apscheduler.executors.base import BaseExecutor, run_job
from apscheduler.job import Job
from apscheduler.schedulers.background import BackgroundScheduler

from flask_async_jobs.errors import StorageUnavailable

_ALIAS: Final = "async_jobs"

_log = logging.getLogger("flask_async_jobs")


class Scheduler:
    """Runs passes at intervals on one daemon thread of this process, one after the other.

    A pass that fails is logged and comes again at its next turn; turns that were missed are not made up for.
    """

    def __init__(self) -> None:
        # At INFO each pass is told twice, and at WARNING each turn that is missed.
        logging.getLogger(f"apscheduler.executors.{_ALIAS}").setLevel(logging.ERROR)
        logging.getLogger("flask_async_jobs.scheduler").setLevel(logging.ERROR)
        self._passes = _Passes()
        self._scheduler = BackgroundScheduler(
            daemon=True,
            timezone="UTC",
            logger=logging.getLogger("flask_async_jobs.scheduler"),
            executors={_ALIAS: self._passes},
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
            executor=_ALIAS,
        )

    def start(self) -> None:
        """Start the threads."""
        self._scheduler.start()

    def stop(self) -> None:
        """Start no further pass. Waits for none."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def join(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for a pass that runs."""
        self._passes.join(timeout)


class _Passes(BaseExecutor):  # type: ignore[misc]
    """Runs what is due on a daemon thread of its own.

    APScheduler's executors either have a pool that is joined at the end of the interpreter, or run a pass while the
    scheduler is locked: neither can be stopped while a pass hangs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._due: SimpleQueue[tuple[Job, list[datetime]] | None] = SimpleQueue()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="async-jobs-passes", daemon=True)

    def start(self, scheduler: BackgroundScheduler, alias: str) -> None:
        super().start(scheduler, alias)
        self._thread.start()

    def shutdown(self, wait: bool = True) -> None:
        self._stopped = True
        self._due.put(None)

    def join(self, timeout: float) -> None:
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _do_submit_job(self, job: Job, run_times: list[datetime]) -> None:
        self._due.put((job, run_times))

    def _run(self) -> None:
        while (due := self._due.get()) and not self._stopped:
            job, run_times = due
            events = run_job(job, job._jobstore_alias, run_times, self._logger.name)
            self._run_job_success(job.id, events)


def _survived(name: str, one_pass: Callable[[], Any]) -> None:
    try:
        one_pass()
    except StorageUnavailable:
        _log.debug("%s: the database cannot be asked; the next turn tries again", name)
    except Exception:
        _log.exception("%s failed; the next turn tries again", name)
