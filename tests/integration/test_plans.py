"""With a long history behind it no statement of the library reads the table from end to end.

The statements are those that the repository sends. On PostgreSQL they are planned both for their parameters and for
any, with statistics of four kinds: none, right ones, and wrong ones of two kinds.
"""

from collections.abc import Iterator
from itertools import count
from os import getpid

import pytest
from sqlalchemy import create_engine

from tests.integration.history import (
    CLAIMED,
    FOUND,
    OPERATIONS,
    PURGED,
    Store,
    console,
    fill,
    fill_anywhere,
    without_autovacuum,
)
from tests.integration.plans import MODES, explained
from tests.integration.stores import LEASE, RULES
from tests.servers.postgres import Databases

ENDED, WAITING, RUNNING = 50_000, 2_000, 500
OUTDATED_HISTORY = "analysed while nothing waited"
OUTDATED_QUEUE = "analysed when every job waited"
STATISTICS = ["never analysed", OUTDATED_HISTORY, OUTDATED_QUEUE, "analysed"]
ACTIVE = WAITING + RUNNING
MOST_ROWS = {
    "insert": 0,
    "capped insert": 3 * ACTIVE,  # each cap counts the active jobs, never the others
    "find all": CLAIMED,
    "claim": 2 * CLAIMED,
    "progress": 2,
    "report": 2,
    "give back": RUNNING + CLAIMED,
    "renew": 2 * CLAIMED,
    "complete together": 2 * CLAIMED,
    "recover": 2 * CLAIMED,
    "sweep": RUNNING + CLAIMED + FOUND,
    "purge": 2 * PURGED,
}
ON_SQLITE = [name for name in OPERATIONS if name != "report"]  # which begins with a statement that takes the turn
numbers = count(1)


@pytest.fixture(scope="module", params=STATISTICS)
def big(request, postgres: Databases, postgres_template: str) -> Iterator[Store]:
    name = f"plans_{getpid()}_{next(numbers)}"
    store = Store(without_autovacuum(postgres.create_database(name, postgres_template)))
    engine = store.engine
    try:
        if request.param == OUTDATED_QUEUE:
            fill(engine, 1_000, "PENDING")
            console(engine, "ANALYZE async_jobs")
            console(engine, "DELETE FROM async_jobs")
        fill(engine, ENDED)
        if request.param == OUTDATED_HISTORY:
            console(engine, "ANALYZE async_jobs")
        fill(engine, WAITING, "PENDING", age=600)
        fill(engine, RUNNING, "PROCESSING", age=60)
        if request.param == "analysed":
            console(engine, "ANALYZE async_jobs")
        store.claims = store.repository.claim(RULES, CLAIMED, LEASE)
        yield store
    finally:
        engine.dispose()
        postgres.drop_database(name)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_operation_reads_the_whole_table(big: Store, operation: str, mode: str) -> None:
    plan = explained(big.engine, big.sent(operation), mode)
    assert plan.sequential == [], str(plan)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_reads_about_as_many_rows_as_it_is_about(big: Store, operation: str, mode: str) -> None:
    plan = explained(big.engine, big.sent(operation), mode)
    assert plan.rows <= MOST_ROWS.get(operation, 1), str(plan)


def test_the_claimed_jobs_are_the_oldest_ones_whatever_the_plan(big: Store) -> None:
    oldest = console(
        big.engine, "SELECT id FROM async_jobs WHERE status = 'PENDING' ORDER BY available_at, created_at LIMIT 5"
    )
    with big.engine.connect() as connection:
        claims = big.repository.within(connection).claim(RULES, 5, LEASE)
        connection.rollback()
    assert [claim.job_id for claim in claims] == [job_id for (job_id,) in oldest]


@pytest.fixture(scope="module", params=["never analysed", "analysed"])
def small(request, sqlite_template, tmp_path_factory) -> Iterator[Store]:
    path = tmp_path_factory.mktemp("plans") / "big.sqlite"
    path.write_bytes(sqlite_template.read_bytes())
    store = Store(create_engine(f"sqlite:///{path}"))
    for status, rows in (("COMPLETED", 3_000), ("PENDING", 200), ("PROCESSING", 50)):
        fill_anywhere(store.engine, rows, status)
    if request.param == "analysed":
        with store.engine.begin() as connection:
            connection.exec_driver_sql("ANALYZE")
    store.claims = store.repository.claim(RULES, CLAIMED, LEASE)
    yield store
    store.engine.dispose()


@pytest.mark.parametrize("operation", ON_SQLITE)
def test_on_sqlite_no_operation_reads_the_whole_table(small: Store, operation: str) -> None:
    wanted = small.sent(operation)
    with small.engine.connect() as connection:
        steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {wanted.statement}", wanted.parameters)
        details = [step[-1] for step in steps]
    scans = [detail for detail in details if detail.startswith("SCAN async_jobs")]
    assert [scan for scan in scans if "INDEX" not in scan] == [], details


@pytest.mark.parametrize(
    ("operation", "index"),
    [("claim", "ix_async_jobs_due"), ("sweep", "ix_async_jobs_processing"), ("purge", "ix_async_jobs_completed")],
)
def test_on_sqlite_what_comes_first_is_found_by_an_index_without_sorting(
    small: Store, operation: str, index: str
) -> None:
    wanted = small.sent(operation)
    with small.engine.connect() as connection:
        steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {wanted.statement}", wanted.parameters)
        details = [step[-1] for step in steps]
    assert any(index in detail for detail in details), details
    assert not any("TEMP B-TREE FOR ORDER BY" in detail for detail in details), details
