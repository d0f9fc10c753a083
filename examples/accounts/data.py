"""Deterministic sample data: the same accounts and movements on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from random import Random
from typing import Any

from sqlalchemy import insert, select

from examples.accounts.eligibility import AnySession
from examples.accounts.models import Account, Movement

BUSINESS_DAY = date(2026, 6, 30)
CHUNK = 5_000
SEED = 20_260_630
DOUBLE_FEE_CENTS = 1_250
MAX_MOVEMENTS = 8
MOVEMENT_SPAN_DAYS = 200

SEGMENTS = ("retail", "retail", "retail", "student", "premier", "business")
STATUSES = ("active",) * 17 + ("dormant",) * 2 + ("closed",)
INCOME_CENTS = {"student": 40_000, "retail": 120_000, "business": 600_000, "premier": 450_000}

Row = dict[str, Any]


def fill(session: AnySession, accounts: int) -> bool:
    """Insert `accounts` accounts and their movements in one transaction, once.

    Returns:
        False, with nothing written, when there is an account already.
    """
    if session.scalar(select(Account.id).limit(1)) is not None:
        return False
    for account_rows, movement_rows in chunks(accounts):
        session.execute(insert(Account.__table__), account_rows)
        if movement_rows:
            session.execute(insert(Movement.__table__), movement_rows)
    session.commit()
    return True


def chunks(accounts: int) -> Iterator[tuple[list[Row], list[Row]]]:
    """Yield the rows of at most `CHUNK` accounts at a time, with the rows of their movements."""
    random = Random(SEED)
    for first in range(1, accounts + 1, CHUNK):
        account_rows: list[Row] = []
        movement_rows: list[Row] = []
        for account_id in range(first, min(first + CHUNK, accounts + 1)):
            segment = random.choice(SEGMENTS)
            movements = list(movements_of(random, account_id, INCOME_CENTS[segment]))
            account_rows.append(account_of(random, account_id, segment, movements))
            movement_rows.extend(movements)
        yield account_rows, movement_rows


def movements_of(random: Random, account_id: int, income_cents: int) -> Iterator[Row]:
    """Yield up to `MAX_MOVEMENTS` bookings: three credits of about the usual income to two debits."""
    for _ in range(random.randint(0, MAX_MOVEMENTS)):
        amount = int(income_cents * random.uniform(0.1, 1.5))
        yield {
            "account_id": account_id,
            "booked_on": BUSINESS_DAY - timedelta(days=int(random.random() * MOVEMENT_SPAN_DAYS)),
            "amount_cents": amount if random.random() < 0.6 else -amount,
        }


def account_of(random: Random, account_id: int, segment: str, movements: list[Row]) -> Row:
    """Return one account whose balance is the sum of its movements, as far as its ledger is right."""
    return {
        "id": account_id,
        "segment": segment,
        "status": random.choice(STATUSES),
        "opened_on": BUSINESS_DAY - timedelta(days=int(random.random() * 4_000)),
        "credit_score": int(random.triangular(300, 900, 680)),
        "overdue": random.random() < 0.06,
        "blocked": random.random() < 0.03,
        "balance_cents": sum(row["amount_cents"] for row in movements) - ledger_error_of(account_id),
    }


def ledger_error_of(account_id: int) -> int:
    """Return what one account in a thousand lacks: a fee was taken from its balance twice."""
    return DOUBLE_FEE_CENTS if account_id % 1_000 == 17 else 0
