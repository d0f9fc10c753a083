"""The application under load: one handler, which notes each of its runs beside the library, and short settings."""

from __future__ import annotations

import logging
import os
import threading
from datetime import timedelta

from flask import Flask, current_app
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from flask_async_jobs import AsyncJobs, JobContext

MAX_ATTEMPTS = 5
WORK_SECONDS = 0.05
LONG_ONES = 150
CONCURRENCY = 8
_BEGIN = text(
    "INSERT INTO runs (job_id, attempt, token, pid, started_at) "
    "VALUES (:job_id, :attempt, :token, :pid, clock_timestamp())"
)
_END = text("UPDATE runs SET ended_at = clock_timestamp() WHERE token = :token")
_pause = threading.Event()

jobs = AsyncJobs()


@jobs.handler("work", max_attempts=MAX_ATTEMPTS, retry_on=(SQLAlchemyError,), backoff=timedelta(milliseconds=200))
def work(ctx: JobContext) -> None:
    """Note that this attempt runs, take a moment (one job in 150: longer than a lease), and note that it ended.

    The notes are written on connections of the handler's own. When one cannot be written the attempt is retried.
    """
    side = current_app.extensions["side"]
    with side.begin() as connection:
        connection.execute(
            _BEGIN,
            {"job_id": ctx.job_id, "attempt": ctx.attempt, "token": ctx.execution_token, "pid": os.getpid()},
        )
    _pause.wait(WORK_SECONDS if ctx.job_id.int % LONG_ONES else current_app.config["LONG_SECONDS"])
    with side.begin() as connection:
        connection.execute(_END, {"token": ctx.execution_token})


def create_app() -> Flask:
    """Return the application on the database that `DATABASE_URL` names; a long job takes `LONG_SECONDS`."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s")
    app = Flask(__name__)
    app.config.update(
        LONG_SECONDS=float(os.environ["LONG_SECONDS"]),
        ASYNC_JOBS_PROCESSING_CONCURRENCY_LIMIT=CONCURRENCY,
        ASYNC_JOBS_PROCESSING_LEASE=2,
        ASYNC_JOBS_PROCESSING_POLL_INTERVAL=0.2,
        ASYNC_JOBS_RECOVERY_SCAN_INTERVAL=0.5,
        ASYNC_JOBS_RECOVERY_REDISPATCH_AFTER=2,
    )
    url = os.environ["DATABASE_URL"]
    app.extensions["side"] = create_engine(url, pool_size=CONCURRENCY, pool_pre_ping=True)
    jobs.init_app(app, engine=create_engine(url))
    return app
