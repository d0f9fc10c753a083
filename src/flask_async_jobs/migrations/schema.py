"""In which schema the tables stand: the one that the environment's `target_metadata` names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import MetaData

from flask_async_jobs.models import TABLE


def schema_of(context: Any) -> str | None:
    """Return the schema of the library's tables in the `target_metadata` of an Alembic environment.

    An application says it once, with `target_metadata = [db.metadata, jobs.metadata_for(schema)]`. Without the
    library's tables in there, the default schema.
    """
    target: MetaData | Iterable[MetaData] | None = context.get_context().opts.get("target_metadata")
    if target is None:
        return None
    each = [target] if isinstance(target, MetaData) else list(target)
    schemas = (table.schema for metadata in each for table in metadata.tables.values() if table.name == TABLE)
    return next(schemas, None)


def create_missing_schema(op: Any, schema: str | None) -> None:
    """Create the schema on PostgreSQL if it is not there; on SQLite it is an attached database."""
    if schema is None or op.get_context().dialect.name != "postgresql":
        return
    if op.get_context().as_sql or schema not in sa.inspect(op.get_bind()).get_schema_names():
        op.execute(sa.schema.CreateSchema(schema, if_not_exists=True))
