"""Column types that mean the same on every database.

They render in a generated migration as plain SQLAlchemy types, which need no import of this package.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import DateTime, Dialect, String, TypeDecorator, Uuid
from sqlalchemy.types import TypeEngine


class Instant(TypeDecorator[datetime]):
    """An instant: aware and in UTC on every database, SQLite included, which stores no zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC; refuse a naive value, whose meaning is unknown."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value!r} is naive: an instant needs a time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Attach UTC where the database stores no zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)

    def __repr__(self) -> str:
        return "DateTime(timezone=True)"


class Identifier(TypeDecorator[UUID]):
    """A UUID: native on PostgreSQL; on SQLite its 36 characters in either case, as it stands in URLs."""

    impl = Uuid
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Choose the column type of the dialect."""
        return dialect.type_descriptor(String(36, "NOCASE") if dialect.name == "sqlite" else Uuid())

    def process_bind_param(self, value: UUID | None, dialect: Dialect) -> Any:
        """Spell the value as the column holds it."""
        return str(value) if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> UUID | None:
        """Read either spelling; a row written at a console may lack the dashes."""
        if value is None or isinstance(value, UUID):
            return value
        try:
            return UUID(value)
        except ValueError:
            return None  # no id at all, written at a console: nobody asks for it, and it must not stop the others

    def __repr__(self) -> str:
        return "Uuid().with_variant(sa.String(length=36, collation='NOCASE'), 'sqlite')"


# Alembic renders a type of SQLAlchemy's own modules as `sa.<repr>` and any other with the name of its module,
# which the consumer's migration would have to import.
Instant.__module__ = Identifier.__module__ = "sqlalchemy.types"
