"""With a long history behind it no statement on batches reads a table from end to end, whatever the statistics."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import count
from os import getpid
from uuid import UUID

import pytest
from sqlalchemy import Engine, text

from flask_async_jobs import JobRepository
from flask_async_jobs.batch_repository import BatchRepository
from tests.integration.history import console, fill, without_autovacuum
from tests.integration.plans import MODES, explained, sent
from tests.integration.stores import RULES
from tests.servers.postgres import Databases

SIZE = 3
KEPT = 20_000
"""Batches that are younger than the retention."""

EXPIRED, REMOVED = 1_000, 10
numbers = count(1)

_batches = text("""
    INSERT INTO async_job_batches (id, type, owner, idempotency_key, fingerprint, created_at)
    SELECT gen_random_uuid(), 'a', 'owner', :age || '-' || n, 'f',
        statement_timestamp() - make_interval(secs => :age) + make_interval(secs => n)
    FROM generate_series(1, CAST(:batches AS int)) AS n
""")
_items = text("""
    INSERT INTO async_jobs (id, type, status, owner, created_at, last_updated_at, completed_at, batch_id, item_id,
        item_position)
    SELECT gen_random_uuid(), 'a', 'COMPLETED', 'owner', b.created_at, b.created_at, b.created_at, b.id, n, n
    FROM async_job_batches AS b, generate_series(1, CAST(:size AS int)) AS n
""")
OPERATIONS = {
    "find": lambda batches, batch_id: batches.find(batch_id),
    "find owned": lambda batches, batch_id: batches.find(batch_id, "owner"),
    "find by key": lambda batches, batch_id: batches.find_by_key("owner", "60-7"),
    "page": lambda batches, batch_id: batches.items(batch_id, 1, 1),
    "cancel": lambda batches, batch_id: batches.cancel(batch_id),
    "purge": lambda batches, batch_id: batches.purge(RULES, timedelta(hours=1), REMOVED),
}
MOST_ROWS = {"find by key": 3 + SIZE, "page": 2, "cancel": 2 * SIZE, "purge": REMOVED * (2 + SIZE)}


@pytest.fixture(scope="module", params=["never analysed", "analysed"])
def engine(request, postgres: Databases, postgres_template: str) -> Iterator[Engine]:
    name = f"batch_plans_{getpid()}_{next(numbers)}"
    engine = without_autovacuum(postgres.create_database(name, postgres_template))
    console(engine, "ALTER TABLE async_job_batches SET (autovacuum_enabled = false)")
    fill(engine, 50_000)
    with engine.begin() as connection:
        connection.execute(_batches, {"batches": KEPT, "age": 60})
        connection.execute(_batches, {"batches": EXPIRED, "age": 86_400})
        connection.execute(_items, {"size": SIZE})
    if request.param == "analysed":
        console(engine, "ANALYZE")
    yield engine
    engine.dispose()
    postgres.drop_database(name)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_reads_about_as_many_rows_as_it_is_about(engine: Engine, operation: str, mode: str) -> None:
    (((batch_id),),) = console(engine, "SELECT id FROM async_job_batches WHERE idempotency_key = '60-7'")
    assert isinstance(batch_id, UUID)
    batches = BatchRepository(JobRepository(engine))
    plan = explained(engine, sent(engine, lambda: OPERATIONS[operation](batches, batch_id)), mode)
    assert plan.sequential == [], str(plan)
    assert plan.rows <= MOST_ROWS.get(operation, 1 + SIZE), str(plan)
