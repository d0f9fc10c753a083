"""Issue a statement for every account; runs in an interpreter of its own, see `worker`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import DateTime, Uuid, delete, func, insert, literal, select

from examples.accounts.eligibility import AnySession, KeepGoing, percentage
from examples.accounts.models import Account, Movement, Statement

BATCH_SIZE = 5_000


def issue_statements(session: AnySession, job_id: UUID, keep_going: KeepGoing) -> int:
    """Replace the statement of every account, a batch in a transaction, until `keep_going` returns False.

    It is asked before the first batch too, so that a job cancelled before this process was up writes nothing.

    Returns:
        How many statements were issued.
    """
    total = session.scalar(select(func.count()).select_from(Account)) or 0
    done = after = 0
    while keep_going(percentage(done, total)) and (page := read_ids(session, after)):
        write_statements(session, job_id, page[0], page[-1])
        session.commit()
        done += len(page)
        after = page[-1]
    return done


def read_ids(session: AnySession, after: int) -> Sequence[int]:
    """Return the next account ids after `after`."""
    return session.scalars(
        select(Account.id).where(Account.id > after).order_by(Account.id).limit(BATCH_SIZE)
    ).all()


def write_statements(session: AnySession, job_id: UUID, first: int, last: int) -> None:
    """Write the statements of the accounts `first` to `last`, counted and summed by the database."""
    sums = (
        select(
            Account.id,
            literal(job_id, Uuid()),
            literal(datetime.now(UTC), DateTime(timezone=True)),
            func.count(Movement.id),
            func.coalesce(func.sum(Movement.amount_cents), 0),
        )
        .outerjoin(Movement, Movement.account_id == Account.id)
        .where(Account.id.between(first, last))
        .group_by(Account.id)
    )
    columns = ["account_id", "job_id", "issued_at", "movements", "balance_cents"]
    session.execute(delete(Statement).where(Statement.account_id.between(first, last)))
    session.execute(insert(Statement).from_select(columns, sums))
