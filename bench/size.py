"""A table of a million ended jobs against one of a thousand: the same operation must cost about the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from statistics import median
from uuid import UUID

from sqlalchemy import create_engine

from bench.report import Figure
from flask_async_jobs import JobRepository
from flask_async_jobs.models import Base
from flask_async_jobs.records import Cap
from tests.integration.history import SILENT, Store, console, fill, without_autovacuum
from tests.integration.stores import LEASE, MINUTE, RULES, new_job
from tests.servers.postgres import PostgresServer

SMALL = (1_000, 1_000)
LARGE = (1_000_000, 50_000)
WARM_UPS, ROUNDS = 5, 15
ACTIVE_RATIO = LARGE[1] / SMALL[1]
COUNTING = "insert below two caps"  # counts the active jobs, of which there are more, but never the others
CAPS = [Cap("total", 100_000), Cap("type", 100_000)]

Operation = Callable[[JobRepository, UUID], object]

OPERATIONS: dict[str, Operation] = {
    "claim 32": lambda jobs, _: jobs.claim(RULES, 32, LEASE),
    "insert": lambda jobs, _: jobs.insert(new_job()),
    COUNTING: lambda jobs, _: jobs.insert(new_job(), CAPS),
    "status": lambda jobs, job_id: jobs.find(job_id),
    "sweep": lambda jobs, _: jobs.stranded(RULES, 100, SILENT, MINUTE, ()),
    "purge 1,000": lambda jobs, _: jobs.purge(RULES, timedelta(hours=1), 1_000),
}


def figures(postgres: PostgresServer) -> Iterator[Figure]:
    """Measure without statistics and with them. Nothing is committed, so that each round finds the same rows."""
    small = _filled(postgres, "size_small", *SMALL)
    begun = time.perf_counter()
    large = _filled(postgres, "size_large", *LARGE)
    yield Figure("seconds to write the large table", time.perf_counter() - begun, most=60)
    try:
        yield from _compared(small, large, "no statistics")
        for store in (small, large):
            console(store.engine, "ANALYZE async_jobs")
        yield from _compared(small, large, "analysed")
    finally:
        for store in (small, large):
            store.engine.dispose()


def _filled(postgres: PostgresServer, name: str, ended: int, waiting: int) -> Store:
    url = postgres.create_database(name)
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    engine.dispose()
    store = Store(without_autovacuum(url))
    fill(store.engine, ended)
    fill(store.engine, waiting, "PENDING", age=600)
    return store


def _compared(small: Store, large: Store, statistics: str) -> Iterator[Figure]:
    for name, operation in OPERATIONS.items():
        few, many = (_milliseconds(store, operation) for store in (small, large))
        note = f"{many:.2f} ms of {few:.2f} ms"
        most = ACTIVE_RATIO if name == COUNTING else 2
        yield Figure(f"{name}, {statistics}", many / few, most=most, note=note)


def _milliseconds(store: Store, operation: Operation) -> float:
    ((job_id,),) = console(store.engine, "SELECT id FROM async_jobs LIMIT 1")
    samples = []
    with store.engine.connect() as connection:
        jobs = store.repository.within(connection)
        for _ in range(WARM_UPS + ROUNDS):
            begun = time.perf_counter()
            operation(jobs, job_id)
            samples.append((time.perf_counter() - begun) * 1_000)
            connection.rollback()
    return median(samples[WARM_UPS:])
