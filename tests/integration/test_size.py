"""What an operation costs does not grow with the history, nor the table with progress."""

from collections.abc import Iterator
from itertools import count
from os import getpid
from statistics import median

import pytest
from sqlalchemy import Engine, create_engine, text

from flask_async_jobs import JobRepository
from tests.integration.history import CLAIMED, OPERATIONS, Store, console, fill, without_autovacuum
from tests.integration.plans import explained
from tests.integration.stores import LEASE, RULES, claimed
from tests.servers.postgres import Databases
from tests.waiting import wait_until

SMALL, LARGE = 1_000, 100_000
WAITING, RUNNING = 1_000, 100
REPORTS = 10_000
PAGES_BY_KEY = 4  # down an index of three levels, and the row
TOGETHER = {"find all", "claim", "renew", "complete together", "recover"}
VERSION = 256  # bytes that one version of a row without payload takes at most
numbers = count(1)


@pytest.fixture(scope="module", params=["never analysed", "analysed"])
def stores(request, postgres: Databases, postgres_template: str) -> Iterator[tuple[Store, Store]]:
    """A store with a short history and one with a long history; what is active is the same."""
    made = []
    try:
        for ended in (SMALL, LARGE):
            name = f"size_{getpid()}_{next(numbers)}"
            store = Store(without_autovacuum(postgres.create_database(name, postgres_template)))
            made.append((name, store))
            fill(store.engine, ended)
            fill(store.engine, WAITING, "PENDING", age=600)
            fill(store.engine, RUNNING, "PROCESSING", age=60)
            if request.param == "analysed":
                console(store.engine, "ANALYZE async_jobs")
            store.claims = store.repository.claim(RULES, CLAIMED, LEASE)
        (_, small), (_, large) = made
        yield small, large
    finally:
        for name, store in made:
            store.engine.dispose()
            postgres.drop_database(name)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_looks_at_no_more_pages_with_a_hundred_times_the_history(
    stores: tuple[Store, Store], operation: str
) -> None:
    plans = [[explained(store.engine, store.sent(operation)) for _ in range(3)] for store in stores]
    small, large = (median(plan.pages for plan in each) for each in plans)
    by_key = PAGES_BY_KEY * (CLAIMED if operation in TOGETHER else 1)
    assert large <= max(2 * small, by_key), f"{plans[0][-1]}\n{plans[1][-1]}"


def reports(engine: Engine, times: int) -> tuple[float, int]:
    """Write progress so often, and return the share of HOT updates and the last percentage."""
    repository = JobRepository(engine)
    before = updates(engine)
    claim = claimed(repository)
    for number in range(times):
        assert repository.progress(claim.job_id, claim.execution_token, number * 100 // times, LEASE)
    view = repository.find(claim.job_id)
    assert repository.complete(claim.job_id, claim.execution_token)
    engine.dispose()  # a session that ends hands in its statistics
    wait_until(lambda: updates(engine)[0] - before[0] >= times, 30, "the statistics")
    total, hot = (now - then for now, then in zip(updates(engine), before, strict=True))
    return hot / total, view.percent_complete


def updates(engine: Engine) -> tuple[int, int]:
    """Return how many rows of the table were updated, and how many of them HOT."""
    statistics = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'async_jobs'"
    with engine.connect() as connection:
        total, hot = connection.exec_driver_sql(statistics).one()
    return total, hot


def sizes(engine: Engine) -> tuple[int, int]:
    """Return how long the table is in bytes after a `VACUUM`, and how long its rows are."""
    console(engine, "VACUUM async_jobs")
    ((table, rows),) = console(
        engine, "SELECT pg_relation_size('async_jobs'), (SELECT sum(pg_column_size(j.*)) FROM async_jobs AS j)"
    )
    return table, rows


@pytest.fixture
def table(postgres_url: str) -> Iterator[Engine]:
    """A table with a short history; autovacuum does not help."""
    engine = without_autovacuum(postgres_url)
    fill(engine, SMALL)
    console(engine, "VACUUM ANALYZE async_jobs")
    yield engine
    engine.dispose()


def test_progress_is_written_in_place_and_the_last_value_always_stands(table: Engine) -> None:
    before, _ = sizes(table)
    share, percent = reports(table, REPORTS)
    after, rows = sizes(table)
    assert share > 0.8
    assert percent == 99
    assert after < 5 * rows
    assert after <= before + 16 * 1024


def test_progress_beside_a_long_transaction_costs_one_old_version_a_report_whose_space_is_used_again(
    table: Engine, postgres_url: str
) -> None:
    before, _ = sizes(table)
    reader = create_engine(postgres_url, isolation_level="REPEATABLE READ")
    with reader.connect() as snapshot:
        snapshot.execute(text("SELECT count(*) FROM async_jobs"))
        share, percent = reports(table, REPORTS // 4)
    reader.dispose()
    after, _ = sizes(table)
    assert share > 0.8
    assert percent == 99
    assert after - before < REPORTS // 4 * VERSION
    fill(table, SMALL, "PENDING")
    assert sizes(table)[0] == after
