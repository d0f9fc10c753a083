"""The tables as declarative models, on a `MetaData` of their own.

Every constraint and index has a fixed name that no naming convention changes, and every type renders in a
generated migration as a plain SQLAlchemy type, so that autogenerate needs no import of this package.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    CheckConstraint,
    DateTime,
    Dialect,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    TypeDecorator,
    Uuid,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.sql.elements import conv
from sqlalchemy.types import TypeEngine

TABLE: Final = "async_jobs"
ALWAYS: Final = "1970-01-01 00:00:00+00:00"
"""The `available_at` of a row written without one: due at any clock's now."""


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


class Base(DeclarativeBase):
    """The declarative base of the library's models, apart from the application's own."""

    metadata = MetaData()


class Job(Base):
    """One accepted unit of work. The columns are documented in the guide for people with a SQL console."""

    __tablename__ = TABLE
    __table_args__ = (
        PrimaryKeyConstraint("id", name=conv("pk_async_jobs")),
        CheckConstraint(
            "status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'CANCELLED')",
            name=conv("ck_async_jobs_status"),
        ),
        CheckConstraint(
            "(status IN ('COMPLETED', 'FAILED', 'CANCELLED')) = (completed_at IS NOT NULL)",
            name=conv("ck_async_jobs_completed"),
        ),
        CheckConstraint("(status = 'FAILED') = (error_title IS NOT NULL)", name=conv("ck_async_jobs_error")),
        CheckConstraint(
            "(status = 'PROCESSING') = (execution_token IS NOT NULL)", name=conv("ck_async_jobs_token")
        ),
        CheckConstraint("percent_complete BETWEEN 0 AND 100", name=conv("ck_async_jobs_percent")),
        CheckConstraint("attempt >= 0", name=conv("ck_async_jobs_attempt")),
        CheckConstraint("revision >= 1", name=conv("ck_async_jobs_revision")),
        CheckConstraint(
            "(batch_id IS NULL) = (item_id IS NULL) AND (batch_id IS NULL) = (item_position IS NULL)",
            name=conv("ck_async_jobs_batch"),
        ),
        Index(
            "ux_async_jobs_idem",
            "owner",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key IS NOT NULL"),
            sqlite_where=text("idempotency_key IS NOT NULL"),
        ),
        Index(
            "ux_async_jobs_inflight",
            "coalescing_key",
            unique=True,
            postgresql_where=text("coalescing_key IS NOT NULL AND status IN ('PENDING', 'PROCESSING')"),
            sqlite_where=text("coalescing_key IS NOT NULL AND status IN ('PENDING', 'PROCESSING')"),
        ),
        Index(
            "ix_async_jobs_due",
            "available_at",
            "created_at",
            postgresql_where=text("status = 'PENDING'"),
            sqlite_where=text("status = 'PENDING'"),
        ),
        # Neither the lease nor the last report stands in an index, so that renewals and reports stay HOT updates.
        Index(
            "ix_async_jobs_processing",
            "started_at",
            postgresql_where=text("status = 'PROCESSING'"),
            sqlite_where=text("status = 'PROCESSING'"),
        ),
        Index(
            "ix_async_jobs_work",
            "work_key",
            "completed_at",
            postgresql_where=text("status = 'COMPLETED'"),
            sqlite_where=text("status = 'COMPLETED'"),
        ),
        Index(
            "ix_async_jobs_completed",
            "completed_at",
            postgresql_where=text("completed_at IS NOT NULL AND batch_id IS NULL"),
            sqlite_where=text("completed_at IS NOT NULL AND batch_id IS NULL"),
        ),
    )

    id: Mapped[UUID] = mapped_column(Identifier())
    type: Mapped[str] = mapped_column(String(64))
    status: Mapped[str] = mapped_column(String(10))
    owner: Mapped[str] = mapped_column(String(255), server_default="")
    coalescing_key: Mapped[str | None] = mapped_column(String(64))
    work_key: Mapped[str | None] = mapped_column(String(64))
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    fingerprint: Mapped[str | None] = mapped_column(String(64))
    payload: Mapped[str | None] = mapped_column(Text)
    result: Mapped[str | None] = mapped_column(Text)
    percent_complete: Mapped[int | None] = mapped_column(SmallInteger)
    error_title: Mapped[str | None] = mapped_column(String(256))
    error_detail: Mapped[str | None] = mapped_column(String(2000))
    error_code: Mapped[str | None] = mapped_column(String(64))
    attempt: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    execution_token: Mapped[UUID | None] = mapped_column(Identifier())
    lease_expires_at: Mapped[datetime | None] = mapped_column(Instant())
    available_at: Mapped[datetime] = mapped_column(Instant(), server_default=text(f"'{ALWAYS}'"))
    created_at: Mapped[datetime] = mapped_column(Instant())
    started_at: Mapped[datetime | None] = mapped_column(Instant())
    last_updated_at: Mapped[datetime] = mapped_column(Instant())
    completed_at: Mapped[datetime | None] = mapped_column(Instant())
    effect_started_at: Mapped[datetime | None] = mapped_column(Instant())
    revision: Mapped[int] = mapped_column(Integer, server_default=text("1"))
    batch_id: Mapped[UUID | None] = mapped_column(Identifier())
    item_id: Mapped[str | None] = mapped_column(String(128))
    item_position: Mapped[int | None] = mapped_column(Integer)


@functools.cache
def metadata_for(schema: str | None = None) -> MetaData:
    """Return the library's tables in `schema`: the `MetaData` to put beside the application's own.

    Args:
        schema: The value of `ASYNC_JOBS_SCHEMA`; without one, the models' own `MetaData`.
    """
    if schema is None:
        return Base.metadata
    metadata = MetaData()
    for table in Base.metadata.sorted_tables:
        table.to_metadata(metadata, schema=schema)
    return metadata


def jobs_table(schema: str | None = None) -> Table:
    """Return `async_jobs` as it stands in `schema`."""
    return metadata_for(schema).tables[f"{schema}.{TABLE}" if schema else TABLE]
