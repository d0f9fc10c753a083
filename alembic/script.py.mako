"""${message}.

Revision ID: ${up_revision}
Revises: ${down_revision | comma,n}
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

from flask_async_jobs.migrations.schema import schema_of
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    """Go up."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Go back down."""
    ${downgrades if downgrades else "pass"}
