"""The scenarios: a load, a fault in the middle of it, and what came of it."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from chaos import faults
from chaos.application import MAX_ATTEMPTS
from chaos.faults import Target
from chaos.history import History, findings, overlaps
from chaos.load import Load
from chaos.store import Store
from chaos.stories import stories
from chaos.throughput import rate, recovery_time
from tests.servers.app_server import AppServer
from tests.servers.postgres import PostgresServer
from tests.waiting import wait_until

APPLICATION: Final = Path(__file__).with_name("application.py")
WORKERS: Final = ("--worker-class", "gthread", "--workers", "2", "--threads", "4")
WARM: Final = 20
DRAIN: Final = 30.0
GOAL: Final = 10.0
SERVER_OPTIONS: Final = {"fsync": "on", "full_page_writes": "on", "max_connections": "60"}

SCENARIOS: Final[dict[str, Callable[[Target], None]]] = {
    "database-restart": faults.restart_database,
    "backends-killed": faults.kill_backends,
    "connections-exhausted": faults.exhaust_connections,
    "worker-killed": faults.kill_worker,
    "workers-killed": faults.kill_workers,
}

_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds: what is measured before and after the fault, how long it lasts, how long the database is away.

    `long_job` is how long one job in 150 takes; longer than an outage, so that its lease lapses while it runs.
    """

    before: float
    fault: float
    away: float
    after: float
    long_job: float


LONG: Final = Timing(before=8, fault=5, away=3, after=15, long_job=7)
SHORT: Final = Timing(before=2, fault=2, away=2.5, after=2.5, long_job=2.5)


@dataclass(frozen=True, slots=True)
class Report:
    """What a scenario showed. Rates in completed jobs per second, `recovery` in seconds, None for never.

    Attributes:
        answers: How many answers there were of each status; None for a broken connection.
        codes: How many jobs failed with each code.
        overlaps: How many attempts began before an earlier one of the job had ended in a living process.
        errors: How many lines of the application's log tell of an error.
        findings: What happened and must not.
        stories: What happened to the first jobs that the findings name.
    """

    name: str
    before: float
    during: float
    after: float
    recovery: float | None
    jobs: int
    attempts: int
    answers: dict[int | None, int]
    slowest: float
    codes: dict[str | None, int]
    overlaps: int
    errors: int
    findings: Sequence[str]
    stories: Sequence[str]
    log: str

    @property
    def recovered_in_time(self) -> bool:
        """Whether the throughput was back within the goal."""
        return self.recovery is not None and self.recovery <= GOAL


def run(name: str, postgres: PostgresServer, timing: Timing) -> Report:
    """Run one scenario on a database of its own; call it from the main thread: it may restart the server."""
    database = f"chaos_{next(_numbers)}"
    store = Store(postgres.create_database(database))
    environment = {
        "DATABASE_URL": store.url,
        "LONG_SECONDS": str(timing.long_job),
        "PYTHONPATH": str(APPLICATION.parent.parent),
    }
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with AppServer.gunicorn(APPLICATION, *WORKERS, log=log, env=environment) as server:
            report = _measured(name, Target(postgres, store, server, _duration(name, timing)), timing)
    postgres.drop_database(database)
    return report


def _duration(name: str, timing: Timing) -> float:
    return timing.away if name == "database-restart" else timing.fault


def _measured(name: str, target: Target, timing: Timing) -> Report:
    with Load(target.server.url) as load:
        wait_until(lambda: target.store.completed() >= WARM, 30, "the first jobs")
        begun = time.time()
        time.sleep(timing.before)
        broken = time.time()
        SCENARIOS[name](target)
        whole = time.time()
        time.sleep(timing.after)
        ended = time.time()
    load.ask_again()
    unfinished = _drained(target.store)
    history = target.store.history(load.accepted, MAX_ATTEMPTS)
    completed = sorted(change.at for change in history.changes if change.new == "COMPLETED")
    before = rate(completed, begun, broken)
    found = [*unfinished, *load.wrong, *findings(history)]
    log = target.server.log_text()
    return Report(
        name=name,
        before=before,
        during=rate(completed, broken, max(whole, broken + 1)),
        after=rate(completed, whole, ended),
        recovery=recovery_time(completed, before, broken, whole, ended),
        jobs=len(history.jobs),
        attempts=sum(job.attempt for job in history.jobs),
        answers=dict(load.answers),
        slowest=max(took for at, took in load.took if at >= begun),
        codes=_failures(history),
        overlaps=overlaps(history),
        errors=sum(" ERROR " in line or "[ERROR]" in line for line in log.splitlines()),
        findings=found,
        stories=stories(history, found),
        log=log,
    )


def _drained(store: Store) -> list[str]:
    """Wait until every job has ended; return that it was in vain, if it was."""
    try:
        wait_until(lambda: store.active() == 0, DRAIN, "the end of all jobs")
    except AssertionError as error:
        return [str(error)]
    return []


def _failures(history: History) -> dict[str | None, int]:
    return dict(Counter(job.error_code for job in history.jobs if job.status == "FAILED"))
