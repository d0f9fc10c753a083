"""The application's own tables; the library's tables are not mentioned here."""

from __future__ import annotations

from datetime import UTC, date, datetime
from uuid import UUID

from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import BigInteger, CheckConstraint, DateTime, ForeignKey, Index, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Base of the application's models."""

    metadata = MetaData(naming_convention=NAMING)


db = SQLAlchemy(model_class=Base)


class Account(db.Model):  # type: ignore[name-defined, misc]
    """One account, with the outcome of the last evaluation: all three columns of it, or none."""

    __tablename__ = "account"
    __table_args__ = (
        CheckConstraint(
            "(eligible IS NULL) = (evaluated_at IS NULL) AND (eligible IS NULL) = (eligibility_reason IS NULL)",
            name="outcome_whole",
        ),
        Index(None, "eligible", "id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    segment: Mapped[str] = mapped_column(String(16))
    status: Mapped[str] = mapped_column(String(16))
    opened_on: Mapped[date]
    credit_score: Mapped[int]
    overdue: Mapped[bool]
    blocked: Mapped[bool]
    balance_cents: Mapped[int] = mapped_column(BigInteger)
    eligible: Mapped[bool | None]
    eligibility_reason: Mapped[str | None] = mapped_column(String(32))
    evaluated_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class Movement(db.Model):  # type: ignore[name-defined, misc]
    """One booking on an account; credits are positive, debits negative."""

    __tablename__ = "movement"
    __table_args__ = (Index(None, "account_id", "booked_on"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    account_id: Mapped[int] = mapped_column(ForeignKey("account.id"))
    booked_on: Mapped[date] = mapped_column(index=True)
    amount_cents: Mapped[int] = mapped_column(BigInteger)


class Statement(db.Model):  # type: ignore[name-defined, misc]
    """The newest statement of an account, issued by the job `job_id`."""

    __tablename__ = "statement"

    account_id: Mapped[int] = mapped_column(ForeignKey("account.id"), primary_key=True, autoincrement=False)
    job_id: Mapped[UUID]
    issued_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    movements: Mapped[int]
    balance_cents: Mapped[int] = mapped_column(BigInteger)


def as_utc(instant: datetime) -> datetime:
    """Return `instant` in UTC; SQLite gives instants back without their zone, and they were stored in UTC."""
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
