"""Batches for tests: an application that takes them, and the rows that they leave."""

from marshmallow import Schema, fields
from sqlalchemy import Engine, text

from flask_async_jobs import AsyncJobs

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
