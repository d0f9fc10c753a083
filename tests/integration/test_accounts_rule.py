"""The accounts example: its outcome, computed again by SQL alone, and what an interrupted run leaves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from sqlalchemy import event, text

from examples.accounts.app import create_app
from examples.accounts.data import fill
from examples.accounts.database import migrate
from examples.accounts.eligibility import reevaluate
from examples.accounts.handlers import jobs
from examples.accounts.models import db
from flask_async_jobs import JobView
from tests.waiting import wait_until

# One CASE for the whole rule, in the order in which a reason is reported.
EXPECTED = text(
    """
    SELECT a.id, CASE
        WHEN a.status IN ('dormant', 'closed') THEN 'not-active'
        WHEN a.blocked THEN 'blocked'
        WHEN a.overdue THEN 'overdue'
        WHEN a.opened_on > :half_a_year_ago THEN 'too-new'
        WHEN a.credit_score < CASE a.segment
            WHEN 'student' THEN 640 WHEN 'retail' THEN 600 WHEN 'business' THEN 620 ELSE 560 END
            THEN 'low-score'
        WHEN (SELECT count(*) FROM movement m
              WHERE m.account_id = a.id AND m.booked_on > :quarter_ago) <= 1 THEN 'inactive'
        WHEN (SELECT coalesce(sum(m.amount_cents), 0) FROM movement m
              WHERE m.account_id = a.id AND m.booked_on > :quarter_ago AND m.amount_cents > 0)
            < CASE a.segment
            WHEN 'student' THEN 30000 WHEN 'retail' THEN 90000 WHEN 'business' THEN 500000 ELSE 300000 END
            THEN 'low-income'
        WHEN (SELECT sum(m.amount_cents) FROM movement m WHERE m.account_id = a.id) < 0 THEN 'overdrawn'
        ELSE 'all-conditions-met' END
    FROM account a ORDER BY a.id
    """
)
WRITTEN = text("SELECT id, eligibility_reason, eligible, evaluated_at FROM account ORDER BY id")
REASONS = 9


def test_the_outcome_of_every_account_is_what_plain_sql_says(empty_database_url: str) -> None:
    with bank(empty_database_url, accounts=3_210) as app:
        run_accounts(app)
        assert written() == expected()


def test_the_outcome_of_the_full_data_is_what_plain_sql_says(empty_sqlite_url: str) -> None:
    with bank(empty_sqlite_url, accounts=50_000) as app:
        run_accounts(app)
        outcome = written()
        assert len(outcome) == 50_000
        assert outcome == expected()
        assert len({reason for _, reason in outcome}) == REASONS


def test_one_run_is_one_instant(empty_sqlite_url: str) -> None:
    with bank(empty_sqlite_url, accounts=1_200) as app:
        run_accounts(app)
        assert db.session.scalar(text("SELECT count(DISTINCT evaluated_at) FROM account")) == 1


@pytest.mark.parametrize("batches", [1, 3])
def test_a_run_that_is_told_to_stop_leaves_whole_batches(empty_database_url: str, batches: int) -> None:
    with bank(empty_database_url, accounts=2_222):
        percents: list[int] = []
        done = reevaluate(db.session, lambda percent: percents.append(percent) or len(percents) < batches)
        assert done == batches * 500
        assert percents == [batch * 500 * 100 // 2_222 for batch in range(1, batches + 1)]
        assert evaluated() == list(range(1, batches * 500 + 1))
        assert written() == expected()[: batches * 500]


def test_a_job_cancelled_in_the_middle_of_a_batch_leaves_whole_batches(empty_database_url: str) -> None:
    with bank(empty_database_url, accounts=2_222) as app:
        job_id = jobs.submit("accounts").job_id
        with on_batch(3, "before_cursor_execute", lambda: jobs.cancel(job_id)):
            run_to_the_end(app, job_id)
        assert ended(job_id).status == "CANCELLED"
        assert evaluated() == list(range(1, 1_501))
        assert written() == expected()[:1_500]


def test_a_batch_that_fails_is_not_written_at_all(empty_database_url: str) -> None:
    with bank(empty_database_url, accounts=2_222) as app:
        job_id = jobs.submit("accounts").job_id
        with on_batch(2, "after_cursor_execute", lambda: 1 / 0):
            run_to_the_end(app, job_id)
        assert ended(job_id).status == "FAILED"
        assert evaluated() == list(range(1, 501))


def test_a_cancelled_run_is_finished_by_the_next(empty_database_url: str) -> None:
    with bank(empty_database_url, accounts=1_700) as app:
        reevaluate(db.session, lambda _: False)
        run_accounts(app)
        assert written() == expected()
        assert len(evaluated()) == 1_700


@contextmanager
def bank(url: str, accounts: int) -> Iterator[Flask]:
    """The example with its tables and data, in an application context; nothing runs jobs yet."""
    app = create_app({"TESTING": True, "SQLALCHEMY_DATABASE_URI": url})
    migrate(app)
    with app.app_context():
        assert fill(db.session, accounts)
        try:
            yield app
        finally:
            jobs.shutdown(app=app)
            db.session.remove()
            db.engine.dispose()


def run_accounts(app: Flask) -> None:
    jobs.start(app)
    view = ended(jobs.submit("accounts").job_id)
    assert view.status == "COMPLETED"
    assert view.percent_complete == 100


def run_to_the_end(app: Flask, job_id: UUID) -> None:
    """Run the job until its handler has returned, which a cancelled job does not wait for."""
    jobs.start(app)
    ended(job_id)
    jobs.shutdown(app=app)


def ended(job_id: UUID) -> JobView:
    """Wait until the job is terminal."""

    def view() -> JobView | None:
        found = jobs.get(job_id)
        return found if found and found.completed_at else None

    return wait_until(view, 60)


@contextmanager
def on_batch(number: int, moment: str, action: Callable[[], object]) -> Iterator[None]:
    """Call `action`, on the thread of the handler, around the statement that writes batch `number`."""
    written_batches = 0

    def listener(*arguments: Any) -> None:
        nonlocal written_batches
        statement, executemany = arguments[2], arguments[5]
        if executemany and statement.startswith("UPDATE account "):
            written_batches += 1
            if written_batches == number:
                action()

    event.listen(db.engine, moment, listener)
    try:
        yield
    finally:
        event.remove(db.engine, moment, listener)


def written() -> list[tuple[int, str]]:
    """What the accounts that were evaluated say; the truth value must agree with the reason."""
    rows = [row for row in db.session.execute(WRITTEN) if row.evaluated_at is not None]
    assert all(bool(row.eligible) == (row.eligibility_reason == "all-conditions-met") for row in rows)
    return [(row.id, row.eligibility_reason) for row in rows]


def evaluated() -> list[int]:
    return [account_id for account_id, _ in written()]


def expected() -> list[tuple[int, str]]:
    last_booking = date.fromisoformat(str(db.session.scalar(text("SELECT max(booked_on) FROM movement"))))
    parameters = {
        "half_a_year_ago": str(last_booking - timedelta(days=180)),
        "quarter_ago": str(last_booking - timedelta(days=90)),
    }
    return [(row[0], row[1]) for row in db.session.execute(EXPECTED, parameters)]
