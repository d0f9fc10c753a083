"""Accounts, movements and statements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "accounts_0001"
down_revision = None
branch_labels = ("accounts",)
depends_on = None


def upgrade() -> None:
    """Create the application's tables."""
    create_account()
    create_movement()
    create_statement()


def downgrade() -> None:
    """Drop the application's tables."""
    for table in ("statement", "movement", "account"):
        op.drop_table(table)


def create_account() -> None:
    """Create `account`."""
    op.create_table(
        "account",
        sa.Column("id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("segment", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("opened_on", sa.Date, nullable=False),
        sa.Column("credit_score", sa.Integer, nullable=False),
        sa.Column("overdue", sa.Boolean, nullable=False),
        sa.Column("blocked", sa.Boolean, nullable=False),
        sa.Column("balance_cents", sa.BigInteger, nullable=False),
        sa.Column("eligible", sa.Boolean, nullable=True),
        sa.Column("eligibility_reason", sa.String(32), nullable=True),
        sa.Column("evaluated_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(eligible IS NULL) = (evaluated_at IS NULL) AND (eligible IS NULL) = (eligibility_reason IS NULL)",
            name=op.f("ck_account_outcome_whole"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account")),
    )
    op.create_index(op.f("ix_account_eligible_id"), "account", ["eligible", "id"])


def create_movement() -> None:
    """Create `movement`."""
    op.create_table(
        "movement",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("account_id", sa.Integer, nullable=False),
        sa.Column("booked_on", sa.Date, nullable=False),
        sa.Column("amount_cents", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_movement_account_id_account")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_movement")),
    )
    op.create_index(op.f("ix_movement_account_id_booked_on"), "movement", ["account_id", "booked_on"])
    op.create_index(op.f("ix_movement_booked_on"), "movement", ["booked_on"])


def create_statement() -> None:
    """Create `statement`."""
    op.create_table(
        "statement",
        sa.Column("account_id", sa.Integer, autoincrement=False, nullable=False),
        sa.Column("job_id", sa.Uuid, nullable=False),
        sa.Column("issued_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("movements", sa.Integer, nullable=False),
        sa.Column("balance_cents", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name=op.f("fk_statement_account_id_account")),
        sa.PrimaryKeyConstraint("account_id", name=op.f("pk_statement")),
    )
