"""Open event streams: what they cost while nothing happens, and how soon a change arrives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from math import nan
from pathlib import Path
from statistics import quantiles
from typing import Any

import httpx
import psycopg
from flask import Flask, current_app
from sqlalchemy import create_engine, make_url

from bench.report import Figure
from flask_async_jobs import AsyncJobs
from flask_async_jobs.models import Base
from flask_async_jobs.records import Claim
from tests.servers.app_server import AppServer
from tests.servers.postgres import PostgresServer

JOBS = 20
CHANGES = 10
PAUSE = 0.033
IDLE = 5.0
LEASE = timedelta(hours=1)
GEVENT = ("--worker-class", "gevent", "--worker-connections", "4000")
GTHREAD = ("--worker-class", "gthread", "--threads", "128")
CASES = [
    ("gevent", GEVENT, 100, True),
    ("gevent", GEVENT, 500, True),
    ("gevent", GEVENT, 1000, True),
    ("gevent", GEVENT, 2000, True),
    ("gevent, polling", GEVENT, 1000, False),
    ("gthread", GTHREAD, 100, True),
]
_COUNT = "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'"


@dataclass(frozen=True)
class Idle:
    """What a process with open streams spends while nothing changes."""

    queries: float
    cpu: float
    kib: float


def figures(postgres: PostgresServer) -> Iterator[Figure]:
    """Measure each number of streams on a server process of its own, beside a design with a query per stream."""
    with PostgresServer(shared_preload_libraries="pg_stat_statements") as server:
        url = server.create_database("streams")
        engine = create_engine(url)
        Base.metadata.create_all(engine)
        with psycopg.connect(_plain(url), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION pg_stat_statements")
            for name, worker, number, notify in CASES:
                yield from _case(engine, connection, f"{number} streams, {name}", worker, number, notify)
        engine.dispose()


def _case(
    engine: Any, connection: Any, name: str, worker: tuple[str, ...], number: int, notify: bool
) -> Iterator[Figure]:
    claims = _claims(engine)
    with _server(engine, worker, notify) as (server, log):
        with _listening(server, connection, f"{server.url}/jobs/{{}}/events", claims, number) as (idle, readers):
            delays = _delays(engine, readers, claims, notify)
        assert "Traceback" not in log.read_text(), log.read_text()
        try:
            with _listening(server, connection, f"{server.url}/floor/{{}}/events", claims, number) as (floor, _):
                pass
        except ConnectionError:  # it does not stand so many
            floor = Idle(nan, nan, nan)
    p50, p95 = (quantiles(delays, n=100)[k] * 1_000 for k in (49, 94))
    yield Figure(f"{name}: queries/s", idle.queries, most=2, note=f"a query per stream: {floor.queries:,.0f}")
    yield Figure(f"{name}: % CPU", idle.cpu, most=5, note=f"a query per stream: {floor.cpu:.1f}")
    gevent = worker is GEVENT
    yield Figure(
        f"{name}: KiB each", idle.kib, most=40 if gevent else None, note=f"{floor.kib:.1f} of a bare stream"
    )
    limit = 100 if notify else 1_000
    yield Figure(f"{name}: p95 ms", p95, most=limit, note=f"p50 {p50:.0f} ms, {len(delays):,} events")


def _claims(engine: Any) -> list[Claim]:
    """Return attempts of new jobs, which run nowhere."""
    with _application(engine, notify=False) as jobs:
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM async_jobs")
        for _ in range(JOBS):
            jobs.submit("noop")
        instance = _instance()
        return list(instance.repository.claim(instance.registry.rules(), JOBS, LEASE))


@contextmanager
def _application(engine: Any, notify: bool) -> Iterator[AsyncJobs]:
    jobs = AsyncJobs()
    jobs.register("noop", lambda: None)
    app = Flask("bench")
    app.config.update(ASYNC_JOBS_PROCESSING_ENABLED=False, ASYNC_JOBS_NOTIFY_ENABLED=notify)
    jobs.init_app(app, engine=engine)
    with app.app_context():
        jobs.start()
        yield jobs
        jobs.shutdown()


def _instance() -> Any:
    return current_app.extensions["async_jobs"]


@contextmanager
def _server(engine: Any, worker: tuple[str, ...], notify: bool) -> Iterator[tuple[AppServer, Path]]:
    application = Path(__file__).with_name("application.py")
    environment = {
        "DATABASE_URL": engine.url.render_as_string(hide_password=False),
        "PYTHONPATH": os.pathsep.join([str(application.parent.parent), os.environ.get("PYTHONPATH", "")]),
        "NOTIFY": str(int(notify)),
    }
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with AppServer.gunicorn(application, *worker, "--workers", "1", log=log, env=environment) as server:
            yield server, log


@contextmanager
def _listening(
    server: AppServer, connection: Any, pattern: str, claims: list[Claim], number: int
) -> Iterator[tuple[Idle, subprocess.Popen[str]]]:
    """Open the streams, look at the process for a while, and leave them open for the block."""
    urls = [pattern.format(claims[index % JOBS].job_id) for index in range(number)]
    with httpx.stream("GET", urls[0]) as response:  # what the first stream makes is not counted for the others
        next(response.iter_raw())
    worker = _child(server.pid)
    before = _resident(worker)
    command = [sys.executable, "-m", "bench.listeners"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as readers:
        assert readers.stdin is not None
        assert readers.stdout is not None
        readers.stdin.write(json.dumps(urls) + "\n")
        readers.stdin.flush()
        if readers.stdout.readline() != "ready\n":
            raise ConnectionError(f"not all of {number} streams were opened")
        kib = (_resident(worker) - before) / number
        queries, cpu = -connection.execute(_COUNT).fetchone()[0], -_cpu_seconds(worker)
        time.sleep(IDLE)
        queries, cpu = queries + connection.execute(_COUNT).fetchone()[0], cpu + _cpu_seconds(worker)
        yield Idle(float(queries) / IDLE, cpu / IDLE * 100, kib), readers
        readers.kill()


def _delays(engine: Any, readers: subprocess.Popen[str], claims: list[Claim], notify: bool) -> list[float]:
    """Change the jobs, and return how many seconds each change took from its commit to each reader."""
    committed: dict[tuple[str, int], float] = {}
    with _application(engine, notify):
        repository = _instance().repository
        for change in range(CHANGES):
            for claim in claims:
                repository.progress(claim.job_id, claim.execution_token, change, LEASE)
                committed[str(claim.job_id), change + 3] = time.time()
                time.sleep(PAUSE)
        time.sleep(2)
    output, _ = readers.communicate()
    arrivals = json.loads(output)
    return [
        at - committed[url.split("/")[-2], id] for url, id, at in arrivals if (url.split("/")[-2], id) in committed
    ]


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise LookupError(pid)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _plain(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
