"""The application's own endpoints: what a job has left in the tables, read with the application's own SQL."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from flask import Blueprint, Response, abort, current_app, jsonify, request
from sqlalchemy import select
from werkzeug.exceptions import HTTPException
from werkzeug.http import is_resource_modified

from examples.accounts.handlers import jobs
from examples.accounts.models import Account, Statement, as_utc, db

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
MAX_ID = 2**31 - 1

accounts = Blueprint("accounts", __name__)


@accounts.get("/")
def index() -> Response:
    """Return the page that submits the job `accounts` and follows it."""
    return current_app.send_static_file("index.html")


@accounts.get("/accounts")
def list_accounts() -> Response:
    """Return a page of accounts, newest evaluation known by `Last-Modified`.

    That is the instant at which the job type `accounts` last completed. A client that has seen it is answered
    304 without a look at the accounts.
    """
    eligible, after = truth("eligible"), whole_number("after", 0, 0, MAX_ID)
    limit = whole_number("limit", DEFAULT_LIMIT, 1, MAX_LIMIT)
    completed_at = jobs.last_completed_at("accounts")
    if completed_at and not is_resource_modified(request.environ, last_modified=completed_at):
        return dated(Response(status=304), completed_at)
    rows = read_accounts(eligible, after, limit + 1)
    page = rows[:limit]
    return dated(
        jsonify(
            accounts=[account_json(account) for account in page],
            nextAfter=page[-1].id if len(rows) > limit else None,
        ),
        completed_at,
    )


@accounts.get(f"/accounts/<int(max={MAX_ID}):account_id>")
def show_account(account_id: int) -> Response:
    """Return one account with its newest statement."""
    account = db.session.get(Account, account_id) or abort(404, f"There is no account {account_id}.")
    statement = db.session.get(Statement, account_id)
    return jsonify(account_json(account) | {"statement": statement and statement_json(statement)})


@accounts.errorhandler(HTTPException)
def as_json(error: HTTPException) -> tuple[Response, int]:
    """Answer an error of these views in JSON."""
    return jsonify(error=error.description), error.code or 500


def read_accounts(eligible: bool | None, after: int, limit: int) -> list[Account]:
    """Return the accounts after the id `after`, by keyset; `eligible` None means all of them."""
    statement = select(Account).where(Account.id > after).order_by(Account.id).limit(limit)
    if eligible is not None:
        statement = statement.where(Account.eligible.is_(eligible))
    return list(db.session.scalars(statement))


def account_json(account: Account) -> dict[str, Any]:
    """Return the public members of an account."""
    return {
        "id": account.id,
        "segment": account.segment,
        "status": account.status,
        "openedOn": account.opened_on.isoformat(),
        "creditScore": account.credit_score,
        "balanceCents": account.balance_cents,
        "eligible": account.eligible,
        "eligibilityReason": account.eligibility_reason,
        "evaluatedAt": account.evaluated_at and instant_json(account.evaluated_at),
    }


def statement_json(statement: Statement) -> dict[str, Any]:
    """Return the public members of a statement."""
    return {
        "jobId": str(statement.job_id),
        "issuedAt": instant_json(statement.issued_at),
        "movements": statement.movements,
        "balanceCents": statement.balance_cents,
    }


def instant_json(instant: datetime) -> str:
    """Return an instant as RFC 3339 text in UTC."""
    return as_utc(instant).isoformat().replace("+00:00", "Z")


def dated(response: Response, completed_at: datetime | None) -> Response:
    """Add what a client needs to ask again cheaply; it must ask, because a job may end at any moment."""
    if completed_at:
        response.last_modified = completed_at
    response.headers["Cache-Control"] = "no-cache"
    return response


def whole_number(name: str, default: int, lowest: int, highest: int) -> int:
    """Return a whole number of the query string, or answer 400."""
    text = request.args.get(name, str(default))
    if not (text.isascii() and text.isdigit() and lowest <= int(text[:20]) <= highest):
        abort(400, f"{name} must be a whole number from {lowest} to {highest}.")
    return int(text)


def truth(name: str) -> bool | None:
    """Return a truth value of the query string, None when it is not there, or answer 400."""
    text = request.args.get(name)
    if text not in {None, "true", "false"}:
        abort(400, f"{name} must be true or false.")
    return None if text is None else text == "true"
