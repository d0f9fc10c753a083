"""SQL expressions that are spelled differently on each database."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from flask_async_jobs.column_types import Identifier


class random_identifier(FunctionElement[UUID]):
    """A random UUID (version 4, RFC 9562 section 5.4), a new one for each row."""

    name = "random_identifier"
    type = Identifier()
    inherit_cache = True


@compiles(random_identifier, "postgresql")
def _on_postgresql(element: random_identifier, compiler: SQLCompiler, **options: Any) -> str:
    return "gen_random_uuid()"


@compiles(random_identifier, "sqlite")
def _on_sqlite(element: random_identifier, compiler: SQLCompiler, **options: Any) -> str:
    return (
        "lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' || "
        "substr('89ab', 1 + (abs(random()) % 4), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))"
    )
