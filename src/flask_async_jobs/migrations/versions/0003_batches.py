"""Batches: the table `async_job_batches`, and the place of an item in its batch.

Revision ID: async_jobs_0003
Revises: async_jobs_0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

from flask_async_jobs.migrations.schema import schema_of

revision = "async_jobs_0003"
down_revision = "async_jobs_0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table and the index."""
    schema = schema_of(context)
    op.create_table(
        "async_job_batches",
        sa.Column("id", sa.Uuid().with_variant(sa.String(36, "NOCASE"), "sqlite"), nullable=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("owner", sa.String(255), server_default="", nullable=False),
        sa.Column("idempotency_key", sa.String(255)),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_async_job_batches")),
        schema=schema,
    )
    _unique_index(
        "ux_async_job_batches_idem", "async_job_batches", ["owner", "idempotency_key"], "idempotency_key", schema
    )
    op.create_index(op.f("ix_async_job_batches_created"), "async_job_batches", ["created_at"], schema=schema)
    _unique_index("ux_async_jobs_item", "async_jobs", ["batch_id", "item_position"], "batch_id", schema)


def downgrade() -> None:
    """Drop the table; the items stay as jobs."""
    schema = schema_of(context)
    op.drop_index(op.f("ux_async_jobs_item"), "async_jobs", schema=schema)
    op.drop_table("async_job_batches", schema=schema)


def _unique_index(name: str, table: str, columns: list[str], key: str, schema: str | None) -> None:
    present = sa.text(f"{key} IS NOT NULL")
    op.create_index(
        op.f(name), table, columns, schema=schema, unique=True, postgresql_where=present, sqlite_where=present
    )
