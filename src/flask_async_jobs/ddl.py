"""The DDL of the tables as text, for applications whose migrations are written in SQL."""

from __future__ import annotations

from sqlalchemy import Dialect
from sqlalchemy.schema import CreateIndex, CreateSchema, CreateTable

from flask_async_jobs.models import metadata_for


def ddl(dialect: Dialect, schema: str | None = None) -> str:
    """Return the statements that create the tables in an empty database, each ended by a semicolon."""
    statements = []
    if schema is not None and dialect.name == "postgresql":
        statements.append(str(CreateSchema(schema, if_not_exists=True).compile(dialect=dialect)))
    for table in metadata_for(schema).sorted_tables:
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements.extend(str(CreateIndex(index).compile(dialect=dialect)) for index in indexes)
    return "".join(f"{statement.strip()};\n\n" for statement in statements)
