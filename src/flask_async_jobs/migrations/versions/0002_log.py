"""The log: the table `async_job_log`, and how many lines and bytes of it a job has.

Revision ID: async_jobs_0002
Revises: async_jobs_0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

from flask_async_jobs.migrations.schema import schema_of

revision = "async_jobs_0002"
down_revision = "async_jobs_0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; a job without a log needs nothing."""
    schema = schema_of(context)
    op.add_column("async_jobs", sa.Column("log_lines", sa.Integer), schema=schema)
    op.add_column("async_jobs", sa.Column("log_bytes", sa.Integer), schema=schema)
    op.create_table(
        "async_job_log",
        sa.Column("job_id", sa.Uuid().with_variant(sa.String(36, "NOCASE"), "sqlite"), nullable=False),
        sa.Column("line_number", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("line", sa.Text, nullable=False),
        sa.Column("written_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "line_number", name=op.f("pk_async_job_log")),
        schema=schema,
    )


def downgrade() -> None:
    """Drop the table, with every line in it."""
    schema = schema_of(context)
    op.drop_table("async_job_log", schema=schema)
    op.drop_column("async_jobs", "log_bytes", schema=schema)
    op.drop_column("async_jobs", "log_lines", schema=schema)
