"""SQL expressions that are spelled differently on each database."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from sqlalchemy import ColumnElement, String, cast, func
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from flask_async_jobs.column_types import Identifier

MARKED: Final = 18
"""The characters of a marked identifier that are its mark: `xxxxxxxx-xxxx-4xxx`."""


def mark_of(identifier: UUID) -> str:
    """Return the mark that `marked_identifier` puts into identifiers: the first half of a random one."""
    return str(identifier)[:MARKED]


def mark_in(identifier: ColumnElement[UUID]) -> ColumnElement[str]:
    """Return the mark in an identifier."""
    return func.substr(cast(identifier, String), 1, MARKED)


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
    return f"lower({_RANDOM_ON_SQLITE})"


class marked_identifier(FunctionElement[UUID]):
    """A UUID that begins with a mark, and is random after it, a new one for each row."""

    name = "marked_identifier"
    type = Identifier()
    inherit_cache = True


@compiles(marked_identifier, "postgresql")
def _marked_on_postgresql(element: marked_identifier, compiler: SQLCompiler, **options: Any) -> str:
    mark = compiler.process(element.clauses, **options)
    return f"CAST(overlay(CAST(gen_random_uuid() AS VARCHAR) placing {mark} from 1) AS UUID)"


@compiles(marked_identifier, "sqlite")
def _marked_on_sqlite(element: marked_identifier, compiler: SQLCompiler, **options: Any) -> str:
    mark = compiler.process(element.clauses, **options)
    return f"{mark} || substr(lower({_RANDOM_ON_SQLITE}), {MARKED + 1})"


_RANDOM_ON_SQLITE: Final = (
    "hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' || "
    "substr('89ab', 1 + (abs(random()) % 4), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))"
)
