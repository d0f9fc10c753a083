"""Jobs: the table `async_jobs` with its constraints and indexes.

Revision ID: async_jobs_0001
Revises:
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import context, op

from flask_async_jobs.migrations.schema import create_missing_schema, schema_of

revision = "async_jobs_0001"
down_revision = None
branch_labels = ("async_jobs",)
depends_on = None

_identifier = sa.Uuid().with_variant(sa.String(36, "NOCASE"), "sqlite")
_instant = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the table."""
    schema = schema_of(context)
    create_missing_schema(op, schema)
    op.create_table(
        "async_jobs",
        sa.Column("id", _identifier, nullable=False),
        sa.Column("type", sa.String(64), nullable=False),
        sa.Column("status", sa.String(10), nullable=False),
        sa.Column("owner", sa.String(255), server_default="", nullable=False),
        sa.Column("coalescing_key", sa.String(64)),
        sa.Column("work_key", sa.String(64)),
        sa.Column("idempotency_key", sa.String(255)),
        sa.Column("fingerprint", sa.String(64)),
        sa.Column("payload", sa.Text),
        sa.Column("result", sa.Text),
        sa.Column("percent_complete", sa.SmallInteger),
        sa.Column("error_title", sa.String(256)),
        sa.Column("error_detail", sa.String(2000)),
        sa.Column("error_code", sa.String(64)),
        sa.Column("attempt", sa.Integer, server_default=sa.text("0"), nullable=False),
        sa.Column("execution_token", _identifier),
        sa.Column("lease_expires_at", _instant),
        sa.Column("available_at", _instant, server_default=sa.text("'1970-01-01 00:00:00+00:00'"), nullable=False),
        sa.Column("created_at", _instant, nullable=False),
        sa.Column("started_at", _instant),
        sa.Column("last_updated_at", _instant, nullable=False),
        sa.Column("completed_at", _instant),
        sa.Column("effect_started_at", _instant),
        sa.Column("revision", sa.Integer, server_default=sa.text("1"), nullable=False),
        sa.Column("batch_id", _identifier),
        sa.Column("item_id", sa.String(128)),
        sa.Column("item_position", sa.Integer),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_async_jobs")),
        sa.CheckConstraint(
            "status IN ('PENDING', 'PROCESSING', 'COMPLETED', 'FAILED', 'CANCELLED')",
            name=op.f("ck_async_jobs_status"),
        ),
        sa.CheckConstraint(
            "(status IN ('COMPLETED', 'FAILED', 'CANCELLED')) = (completed_at IS NOT NULL)",
            name=op.f("ck_async_jobs_completed"),
        ),
        sa.CheckConstraint("(status = 'FAILED') = (error_title IS NOT NULL)", name=op.f("ck_async_jobs_error")),
        sa.CheckConstraint(
            "(status = 'PROCESSING') = (execution_token IS NOT NULL)", name=op.f("ck_async_jobs_token")
        ),
        sa.CheckConstraint("percent_complete BETWEEN 0 AND 100", name=op.f("ck_async_jobs_percent")),
        sa.CheckConstraint("attempt >= 0", name=op.f("ck_async_jobs_attempt")),
        sa.CheckConstraint("revision >= 1", name=op.f("ck_async_jobs_revision")),
        sa.CheckConstraint(
            "(batch_id IS NULL) = (item_id IS NULL) AND (batch_id IS NULL) = (item_position IS NULL)",
            name=op.f("ck_async_jobs_batch"),
        ),
        schema=schema,
    )
    active = "coalescing_key IS NOT NULL AND status IN ('PENDING', 'PROCESSING')"
    _index("ux_async_jobs_idem", ["owner", "idempotency_key"], "idempotency_key IS NOT NULL", schema, unique=True)
    _index("ux_async_jobs_inflight", ["coalescing_key"], active, schema, unique=True)
    _index("ix_async_jobs_due", ["available_at", "created_at"], "status = 'PENDING'", schema)
    _index("ix_async_jobs_processing", ["started_at"], "status = 'PROCESSING'", schema)
    _index("ix_async_jobs_work", ["work_key", "completed_at"], "status = 'COMPLETED'", schema)
    _index("ix_async_jobs_completed", ["completed_at"], "completed_at IS NOT NULL AND batch_id IS NULL", schema)


def downgrade() -> None:
    """Drop the table, with the jobs in it."""
    op.drop_table("async_jobs", schema=schema_of(context))


def _index(name: str, columns: list[str], where: str, schema: str | None, **options: Any) -> None:
    condition = sa.text(where)
    op.create_index(
        op.f(name),
        "async_jobs",
        columns,
        schema=schema,
        postgresql_where=condition,
        sqlite_where=condition,
        **options,
    )
