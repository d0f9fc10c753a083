"""Running jobs in one process: a backlog drained, the time from submission to completion, and the WAL of a job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles

import psycopg
from flask import Flask
from sqlalchemy import Engine, create_engine, event, text

from bench.report import Figure
from flask_async_jobs import AsyncJobs, JobStatus
from flask_async_jobs.models import Base
from tests.servers.postgres import PostgresServer

BACKLOG = 4_000
LONG_BACKLOG = 20_000
ROUNDS = 3
LONG_ROUNDS = 5
FLOOR_UPDATES = 2_000
LATENCIES = 300

_FILL = """
    INSERT INTO async_jobs (id, type, status, created_at, last_updated_at)
    SELECT gen_random_uuid(), 'noop', 'PENDING', now(), now() FROM generate_series(1, :jobs)
"""


@contextmanager
def _application(engine: Engine, **settings: object) -> Iterator[AsyncJobs]:
    jobs = AsyncJobs()
    jobs.register("noop", lambda: None)
    app = Flask("bench")
    app.config.update({f"ASYNC_JOBS_{name}": value for name, value in settings.items()})
    jobs.init_app(app, engine=engine)
    with app.app_context():
        yield jobs
        jobs.shutdown()


def figures(postgres: PostgresServer) -> Iterator[Figure]:
    """Measure everything on one database."""
    url = postgres.create_database("in_process")
    engine = create_engine(url, pool_size=40)
    Base.metadata.create_all(engine)
    try:
        yield _drain(url, engine)
        yield _drain_beside_a_listener(url, engine)
        yield from _latency(engine)
        yield from _wal(engine)
    finally:
        engine.dispose()


def _drain(url: str, engine: Engine) -> Figure:
    rounds = [(_drained(engine), _floor(url)) for _ in range(ROUNDS)]
    library, floor = (median(each) for each in zip(*rounds, strict=True))
    ratio = median(a / b for a, b in rounds)
    return Figure("drain: of raw updates", ratio, least=0.6, note=f"{library:,.0f}/s of {floor:,.0f}/s")


def _drain_beside_a_listener(url: str, engine: Engine) -> Figure:
    """Compare a process that tells another one what it changed to one that tells nobody."""
    other = create_engine(url)
    rates = []
    with _application(other, PROCESSING_ENABLED=False) as listener:
        listener.start()
        rates.extend(
            [_drained(engine, LONG_BACKLOG, NOTIFY_ENABLED=notify) for notify in (True, False)]
            for _ in range(LONG_ROUNDS)
        )
    other.dispose()
    telling, silent = (median(each) for each in zip(*rates, strict=True))
    note = f"{telling:,.0f}/s of {silent:,.0f}/s"
    return Figure("drain: telling, of silent", median(a / b for a, b in rates), least=0.95, note=note)


def _drained(engine: Engine, backlog: int = BACKLOG, **settings: object) -> float:
    with engine.begin() as connection:
        connection.execute(text("TRUNCATE async_jobs"))
        connection.execute(text(_FILL), {"jobs": backlog})
    with _application(engine, **settings) as jobs:
        begun = time.perf_counter()
        jobs.start()
        _wait_until_drained(engine)
        return backlog / (time.perf_counter() - begun)


def _wait_until_drained(engine: Engine) -> None:
    with engine.connect() as connection:
        while connection.execute(text("SELECT 1 FROM async_jobs WHERE status <> 'COMPLETED' LIMIT 1")).first():
            connection.rollback()
            time.sleep(0.02)


def _floor(url: str) -> float:
    """Return how often a second raw psycopg updates one row and commits, on one connection."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        found = connection.execute("SELECT id FROM async_jobs LIMIT %s", (FLOOR_UPDATES,)).fetchall()
        connection.commit()
        begun = time.perf_counter()
        for (job_id,) in found:
            update = "UPDATE async_jobs SET revision = revision + 1 WHERE id = %s RETURNING last_updated_at"
            connection.execute(update, (job_id,)).fetchone()
            connection.commit()
        return len(found) / (time.perf_counter() - begun)


def _latency(engine: Engine) -> Iterator[Figure]:
    """Measure from the return of a submission to the persisted completion, one job at a time."""
    samples = []
    with _application(engine) as jobs:
        jobs.start()
        for _ in range(LATENCIES):
            submitted = jobs.submit("noop")
            begun = time.perf_counter()
            while jobs.get(submitted.job_id).status is not JobStatus.COMPLETED:  # type: ignore[union-attr]
                time.sleep(0.0005)
            samples.append((time.perf_counter() - begun) * 1_000)
    yield Figure("submitted to completed, p50 ms", median(samples), most=10)
    yield Figure("submitted to completed, p99 ms", quantiles(samples, n=100)[98], most=30)


def _wal(engine: Engine) -> Iterator[Figure]:
    """Measure the WAL and the writing statements of a job at low load."""
    for name, key, most in (("without a key", False, 1_500), ("with a key", True, 1_900)):
        writes: list[str] = []

        def note(
            connection: object, cursor: object, statement: str, *rest: object, writes: list[str] = writes
        ) -> None:
            if statement.startswith(("INSERT", "UPDATE")) or statement.startswith("WITH"):
                writes.append(statement)

        with _application(engine) as jobs:
            jobs.start()
            jobs.submit("noop")
            time.sleep(0.3)
            event.listen(engine, "before_cursor_execute", note)
            before = _wal_position(engine)
            for number in range(LATENCIES):
                submitted = jobs.submit("noop", idempotency_key=f"{key}-{number}" if key else None)
                while jobs.get(submitted.job_id).status is not JobStatus.COMPLETED:  # type: ignore[union-attr]
                    time.sleep(0.0005)
            written = _wal_position(engine) - before
            event.remove(engine, "before_cursor_execute", note)
        yield Figure(f"WAL bytes a job {name}", written / LATENCIES, most=most)
        yield Figure(f"writing statements a job {name}", len(writes) / LATENCIES, most=3.1)


def _wal_position(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(
            connection.execute(text("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")).scalar_one()
        )
