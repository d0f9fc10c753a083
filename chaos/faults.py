"""The faults: each breaks something for a time, and returns when all is whole again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

from chaos.store import Store
from tests.servers.app_server import AppServer
from tests.servers.postgres import PostgresServer

KILL_BACKENDS: Final = 0.2
KILL_WORKERS: Final = 0.5
LEFT: Final = 2
_TERMINATE: Final = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s"


@dataclass(frozen=True, slots=True)
class Target:
    """What can be broken; `seconds` is for how long."""

    postgres: PostgresServer
    store: Store
    server: AppServer
    seconds: float


def restart_database(target: Target) -> None:
    """Kill the database server as a power cut would, and start it again later."""
    target.postgres.kill()
    time.sleep(target.seconds)
    target.postgres.start()


def kill_backends(target: Target) -> None:
    """End all connections of the application at once, again and again."""
    with _administrator(target) as administrator:
        for _ in _ticks(target.seconds, KILL_BACKENDS):
            _terminate(administrator, target)


def exhaust_connections(target: Target) -> None:
    """Take all connections that the database server gives but two, which are left to the whole application.

    Those that the application has are ended one after the other, until all others are taken.
    """
    end = time.monotonic() + target.seconds
    with _administrator(target) as administrator, ExitStack() as taken:
        row = administrator.execute("SELECT current_setting('max_connections')::integer").fetchone()
        assert row is not None
        wanted = row[0] - 1 - LEFT
        count = 0
        while count < wanted and time.monotonic() < end:
            try:
                taken.enter_context(psycopg.connect(_maintenance(target), connect_timeout=5))
                count += 1
            except psycopg.OperationalError:
                _terminate(administrator, target)
        if count < wanted:
            raise RuntimeError(f"only {count} of {wanted} connections could be taken")
        time.sleep(max(0.0, end - time.monotonic()))


def kill_worker(target: Target) -> None:
    """Kill the oldest worker process."""
    _kill(_workers(target.server)[0])


def kill_workers(target: Target) -> None:
    """Kill the oldest worker process, again and again."""
    killed: set[int] = set()
    for _ in _ticks(target.seconds, KILL_WORKERS):
        for worker in [pid for pid in _workers(target.server) if pid not in killed][:1]:
            _kill(worker)
            killed.add(worker)


def _workers(server: AppServer) -> list[int]:
    """The worker processes of gunicorn, the oldest first."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children")
    return [int(pid) for pid in children.read_text().split()]


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _ticks(seconds: float, interval: float) -> Iterator[None]:
    """Yield at once and at each interval, for so many seconds."""
    begun = time.monotonic()
    for number in range(int(seconds / interval)):
        time.sleep(max(0.0, begun + number * interval - time.monotonic()))
        yield
    time.sleep(max(0.0, begun + seconds - time.monotonic()))


def _administrator(target: Target) -> psycopg.Connection[tuple[int]]:
    return psycopg.connect(_maintenance(target), autocommit=True, connect_timeout=5)


def _maintenance(target: Target) -> str:
    return target.postgres.url.replace("+psycopg", "")


def _terminate(administrator: psycopg.Connection[tuple[int]], target: Target) -> None:
    administrator.execute(_TERMINATE, [target.store.url.rpartition("/")[2]])
