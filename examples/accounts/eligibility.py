"""Who may have the instant credit line: the rule, and the routine that keeps every account evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, case, func, select, update
from sqlalchemy.orm import Session, scoped_session

from examples.accounts.models import Account, Movement

BATCH_SIZE = 500
MIN_AGE = timedelta(days=180)
RECENT = timedelta(days=90)
MIN_RECENT_MOVEMENTS = 2
MIN_SCORE = {"student": 640, "retail": 600, "business": 620, "premier": 560}
MIN_INCOME_CENTS = {"student": 30_000, "retail": 90_000, "business": 500_000, "premier": 300_000}

AnySession = Session | scoped_session[Any]
KeepGoing = Callable[[int], bool]
Tell = Callable[[str], object]
Totals = tuple[int, int, int]
NO_MOVEMENTS: Totals = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Profile:
    """What the rule looks at: columns of the account, and its movements in three numbers."""

    segment: str
    status: str
    opened_on: date
    credit_score: int
    overdue: bool
    blocked: bool
    recent_movements: int
    recent_credits_cents: int
    net_cents: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for one account; the reason names the first condition that it did not meet."""

    eligible: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Run:
    """What stays the same through one evaluation of all accounts."""

    business_day: date
    evaluated_at: datetime
    total: int


def evaluate(profile: Profile, business_day: date) -> Verdict:
    """Return whether an account may have the instant credit line on `business_day`, and why."""
    refusals = (
        (profile.status != "active", "not-active"),
        (profile.blocked, "blocked"),
        (profile.overdue, "overdue"),
        (profile.opened_on > business_day - MIN_AGE, "too-new"),
        (profile.credit_score < MIN_SCORE[profile.segment], "low-score"),
        (profile.recent_movements < MIN_RECENT_MOVEMENTS, "inactive"),
        (profile.recent_credits_cents < MIN_INCOME_CENTS[profile.segment], "low-income"),
        (profile.net_cents < 0, "overdrawn"),
    )
    refusal = next((reason for refused, reason in refusals if refused), None)
    return Verdict(eligible=refusal is None, reason=refusal or "all-conditions-met")


def reevaluate(session: AnySession, keep_going: KeepGoing, tell: Tell = lambda _: None) -> int:
    """Evaluate every account, in batches of `BATCH_SIZE` by ascending id, each in a transaction of its own.

    After each commit `tell` is given a line about the batch, and `keep_going` the percentage that is done. When it
    returns False the routine stops there: the accounts up to that batch have the new outcome, the others keep the
    one they had, and no batch is ever written in part.

    Returns:
        How many accounts were evaluated.
    """
    run = begin(session)
    done = after = 0
    while page := read_page(session, after):
        eligible = write_outcomes(session, run, page)
        session.commit()
        tell(f"Accounts {page[0].id} to {page[-1].id}: {eligible} are eligible.")
        done += len(page)
        after = page[-1].id
        if not keep_going(percentage(done, run.total)):
            break
    return done


def begin(session: AnySession) -> Run:
    """Read what the run needs: the bank's last booking day is its calendar, not the server's date."""
    business_day = session.scalar(select(func.max(Movement.booked_on))) or datetime.now(UTC).date()
    total = session.scalar(select(func.count()).select_from(Account)) or 0
    return Run(business_day, datetime.now(UTC), total)


def read_page(session: AnySession, after: int) -> Sequence[Any]:
    """Return the next accounts after the id `after`, by keyset: a page costs the same wherever it is."""
    columns = (
        Account.id,
        Account.segment,
        Account.status,
        Account.opened_on,
        Account.credit_score,
        Account.overdue,
        Account.blocked,
    )
    return session.execute(select(*columns).where(Account.id > after).order_by(Account.id).limit(BATCH_SIZE)).all()


def read_totals(session: AnySession, first: int, last: int, since: date) -> dict[int, Totals]:
    """Return recent movements, recent credits and net amount by account; the database does the adding."""
    recent = Movement.booked_on > since
    credit = recent & (Movement.amount_cents > 0)
    statement = (
        select(
            Movement.account_id,
            func.sum(case((recent, 1), else_=0)),
            func.sum(case((credit, Movement.amount_cents), else_=0)),
            func.sum(Movement.amount_cents),
        )
        .where(Movement.account_id.between(first, last))
        .group_by(Movement.account_id)
    )
    return {row[0]: (int(row[1]), int(row[2]), int(row[3])) for row in session.execute(statement)}


def write_outcomes(session: AnySession, run: Run, page: Sequence[Any]) -> int:
    """Write the outcome of one page with one `UPDATE`, executed for many rows at once; the caller commits.

    Returns:
        How many accounts of the page are eligible.
    """
    totals = read_totals(session, page[0].id, page[-1].id, run.business_day - RECENT)
    outcomes = [outcome_of(run, account, totals.get(account.id, NO_MOVEMENTS)) for account in page]
    table = Account.__table__
    session.execute(update(table).where(table.c.id == bindparam("account_id")), outcomes)
    return sum(outcome["eligible"] for outcome in outcomes)


def outcome_of(run: Run, account: Any, totals: Totals) -> dict[str, Any]:
    """Return the parameters of the `UPDATE` for one account."""
    recent_movements, recent_credits_cents, net_cents = totals
    profile = Profile(
        segment=account.segment,
        status=account.status,
        opened_on=account.opened_on,
        credit_score=account.credit_score,
        overdue=account.overdue,
        blocked=account.blocked,
        recent_movements=recent_movements,
        recent_credits_cents=recent_credits_cents,
        net_cents=net_cents,
    )
    verdict = evaluate(profile, run.business_day)
    return {
        "account_id": account.id,
        "eligible": verdict.eligible,
        "eligibility_reason": verdict.reason,
        "evaluated_at": run.evaluated_at,
    }


def percentage(done: int, total: int) -> int:
    """Return how much of `total` is done, 0 to 100; accounts opened meanwhile may make `done` the larger."""
    return min(100, done * 100 // max(total, 1))
