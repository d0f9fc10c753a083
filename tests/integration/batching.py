"""Batches for tests: an application that takes them, and the rows that they leave."""

import json
from datetime import UTC, datetime
from uuid import uuid4

from marshmallow import Schema, fields
from sqlalchemy import Engine, text, update

from flask_async_jobs import AsyncJobs
from flask_async_jobs.batch_repository import NewBatch, NewItem
from flask_async_jobs.models import batches_table, jobs_table
from tests.integration.apps import Site
from tests.integration.stores import LEASE, RULES
from tests.waiting import wait_until

TABLES = ("async_job_batches", "async_jobs")


class Review(Schema):
    """What `review` takes."""

    price = fields.Raw(required=True)
    rooms = fields.Integer(strict=True)


def batch_jobs() -> AsyncJobs:
    """Return an `AsyncJobs` with a type that takes a payload, one that takes none, and others."""
    jobs = AsyncJobs()
    jobs.register("review", lambda ctx, payload: payload, payload_schema=Review)
    jobs.register("quick", lambda: None)
    jobs.register("away", lambda: None, detached=True)
    jobs.register("keyed", lambda: None, require_idempotency_key=True)
    jobs.register("single", lambda: None, coalesce=True)
    jobs.register("three", lambda: None, max_active=3)
    return jobs


def quick_items(number: int, prefix: str = "i"):
    """Return items without payload."""
    return [{"itemId": f"{prefix}{n}"} for n in range(1, number + 1)]


def stored(engine: Engine) -> tuple[int, ...]:
    """Return how many batches there are, and how many jobs."""
    with engine.connect() as connection:
        return tuple(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() for table in TABLES)


def column(engine: Engine, name: str) -> list:
    """Return a column of the items, in their order."""
    with engine.connect() as connection:
        rows = connection.execute(text(f"SELECT {name} FROM async_jobs ORDER BY batch_id, item_position"))
        return list(rows.scalars())


def body(*ids: str, payload: str | None = None) -> str:
    """Return the JSON text of a submission."""
    member = f', "payload": {payload}' if payload else ""
    items = ", ".join(f'{{"itemId": {json.dumps(id)}{member}}}' for id in ids)
    return f'{{"items": [{items}]}}'


def accepted(site: Site, type: str = "quick", text: str = body("a", "b", "c"), **options: str) -> str:
    """Submit a batch that must be accepted, and return its id."""
    response = site.batch(type, text, **{"key": str(uuid4()), **options})
    assert response.status_code == 202, response.text
    return str(response.json["batchId"])


def ended(site: Site, batch_id: str) -> dict:
    """Wait until a batch has ended and return its summary."""

    def summary() -> dict | None:
        answer = site.get(f"/batches/{batch_id}").json
        return answer if answer["status"] == "COMPLETED" else None

    return wait_until(summary)


def new_batch(size=3, *, type="a", owner="", key=None):
    """Return a batch for the store."""
    items = [NewItem(f"i{n}", '{"n": 1}', "f" * 32, f"{n:032}") for n in range(1, size + 1)]
    return NewBatch(uuid4(), type, owner, "fingerprint", key, items)


def end_all(repository, limit=100, result=None):
    """Run what is due to its end."""
    for claim in repository.claim(RULES, limit, LEASE):
        repository.complete(claim.job_id, claim.execution_token, result)


def age(engine, batch_id, by):
    """Move a batch and its items into the past."""
    moment = datetime.now(UTC) - by
    jobs, batches = jobs_table(), batches_table()
    instants = dict.fromkeys(("created_at", "last_updated_at", "completed_at"), moment)
    with engine.begin() as connection:
        connection.execute(update(jobs).where(jobs.c.batch_id == batch_id).values(**instants))
        connection.execute(update(batches).where(batches.c.id == batch_id).values(created_at=moment))
