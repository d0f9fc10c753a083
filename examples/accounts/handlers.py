"""The job types of this application. A handler works on the application's own tables and returns nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from threading import Thread

from flask import current_app

from examples.accounts.audit import find_imbalance
from examples.accounts.eligibility import reevaluate
from examples.accounts.models import db
from flask_async_jobs import AsyncJobs, JobContext, JobFailed

jobs = AsyncJobs()

PROJECT = Path(__file__).resolve().parents[2]


@jobs.handler("accounts", freshness=timedelta(minutes=30), coalesce=True, max_attempts=3)
def keep_accounts_evaluated(ctx: JobContext) -> None:
    """Make sure that every account is evaluated for the instant credit line.

    The outcome is read from `GET /accounts`. An evaluation that ended less than 30 minutes ago answers the
    request, and so does one that is running. `Cache-Control: no-cache` asks for a new one in the first case.
    An evaluation whose process died is begun again.
    """
    ctx.log(f"Attempt {ctx.attempt} begins.")
    reevaluate(db.session, lambda percent: ctx.progress(percent) and not ctx.is_cancelled, ctx.log)


@jobs.handler("accounts-audit")
def audit_accounts() -> None:
    """Check that every balance is the sum of its movements.

    Ends as FAILED with the code `ledger-unbalanced` when it is not; the detail says where to look first.
    """
    if finding := find_imbalance(db.session):
        raise JobFailed("Ledger does not balance", str(finding), "ledger-unbalanced")


@jobs.handler("statements", detached=True)
def start_statements(ctx: JobContext) -> None:
    """Issue a statement for every account, in another process.

    The job is PROCESSING until that process has reported the outcome.
    """
    start_worker(str(ctx.job_id), str(ctx.execution_token))


def start_worker(job_id: str, execution_token: str) -> None:
    """Start another interpreter that is told the job, its token and, by environment, the database."""
    environment = {**os.environ, "DATABASE_URL": current_app.config["SQLALCHEMY_DATABASE_URI"]}
    process = subprocess.Popen(  # noqa: S603 - our own module, with two UUIDs
        [sys.executable, "-m", "examples.accounts.worker", job_id, execution_token],
        cwd=PROJECT,
        env=environment,
        start_new_session=True,
    )
    Thread(target=process.wait, daemon=True, name=f"statements-{job_id}").start()
