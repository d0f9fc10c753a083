"""The tables as declarative models, on a `MetaData` of their own.

Every constraint and index has a fixed name that no naming convention changes.
"""

from __future__ import annotations

import functools
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy import (
    CheckConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.sql.elements import conv

from flask_async_jobs.column_types import Identifier, Instant

TABLE: Final = "async_jobs"
LOG_TABLE: Final = "async_job_log"
BATCH_TABLE: Final = "async_job_batches"
ALWAYS: Final = "1970-01-01 00:00:00+00:00"
"""The `available_at` of a row written without one: due at any clock's now."""


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
        Index(
            "ux_async_jobs_item",
            "batch_id",
            "item_position",
            unique=True,
            postgresql_where=text("batch_id IS NOT NULL"),
            sqlite_where=text("batch_id IS NOT NULL"),
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
    log_lines: Mapped[int | None] = mapped_column(Integer)
    log_bytes: Mapped[int | None] = mapped_column(Integer)


class LogLine(Base):
    """One line of a job's log. The numbers of a job's lines begin with 1 and leave no gap.

    No foreign key: purge removes the lines with the job on every database, and a job that ends costs no check.
    """

    __tablename__ = LOG_TABLE
    __table_args__ = (PrimaryKeyConstraint("job_id", "line_number", name=conv("pk_async_job_log")),)

    job_id: Mapped[UUID] = mapped_column(Identifier())
    line_number: Mapped[int] = mapped_column(Integer, autoincrement=False)
    line: Mapped[str] = mapped_column(Text)
    written_at: Mapped[datetime] = mapped_column(Instant())


class Batch(Base):
    """Jobs that were accepted together. How far they are is counted from their rows, never stored."""

    __tablename__ = BATCH_TABLE
    __table_args__ = (
        PrimaryKeyConstraint("id", name=conv("pk_async_job_batches")),
        Index(
            "ux_async_job_batches_idem",
            "owner",
            "idempotency_key",
            unique=True,
            postgresql_where=text("idempotency_key IS NOT NULL"),
            sqlite_where=text("idempotency_key IS NOT NULL"),
        ),
        Index("ix_async_job_batches_created", "created_at"),
    )

    id: Mapped[UUID] = mapped_column(Identifier())
    type: Mapped[str] = mapped_column(String(64))
    owner: Mapped[str] = mapped_column(String(255), server_default="")
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    fingerprint: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(Instant())


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
    return _table(TABLE, schema)


def log_table(schema: str | None = None) -> Table:
    """Return `async_job_log` as it stands in `schema`."""
    return _table(LOG_TABLE, schema)


def batches_table(schema: str | None = None) -> Table:
    """Return `async_job_batches` as it stands in `schema`."""
    return _table(BATCH_TABLE, schema)


def _table(name: str, schema: str | None) -> Table:
    return metadata_for(schema).tables[f"{schema}.{name}" if schema else name]
