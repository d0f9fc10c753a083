"""Compare the balance of every account with the sum of its movements."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from examples.accounts.eligibility import AnySession
from examples.accounts.models import Account, Movement


@dataclass(frozen=True, slots=True)
class Imbalance:
    """What the audit found: how many accounts are wrong, by how much in all, and where to begin."""

    accounts: int
    difference_cents: int
    first_account: int

    def __str__(self) -> str:
        """Return the finding as one sentence for the person who has to look into it."""
        amount = f"{self.difference_cents / 100:,.2f}"
        return (
            f"{self.accounts} account(s) differ from the sum of their movements, by {amount} in all; "
            f"the first is account {self.first_account}."
        )


def find_imbalance(session: AnySession) -> Imbalance | None:
    """Return the accounts whose balance is not what their movements add up to, or None; one statement."""
    booked = (
        select(Movement.account_id, func.sum(Movement.amount_cents).label("cents"))
        .group_by(Movement.account_id)
        .subquery()
    )
    difference = func.coalesce(booked.c.cents, 0) - Account.balance_cents
    accounts, cents, first = session.execute(
        select(func.count(), func.sum(func.abs(difference)), func.min(Account.id))
        .select_from(Account)
        .outerjoin(booked, booked.c.account_id == Account.id)
        .where(difference != 0)
    ).one()
    return Imbalance(accounts, int(cents), first) if accounts else None
