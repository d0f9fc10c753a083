"""An application whose process kills itself at a given statement.

Run as a program, it forks a process for each line that it reads. A line is JSON: the database's `url`, the job's
`type` and `key`, the `moment` (before or after) and the `number` of the statement. The answer is the exit code of
the process: -9, or 0 if it lived to the end of its work.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, event, func, insert, select

from flask_async_jobs import AsyncJobs, JobContext, JobFailed, RetryLater
from flask_async_jobs.contexts import handler_context
from flask_async_jobs.executor import Executor

MAX_ATTEMPTS = 3
LEASE = timedelta(seconds=30)

metadata = MetaData()
effects = Table("effects", metadata, Column("id", Integer, primary_key=True), Column("job_id", String))


@dataclass
class Application:
    """The application, in the process that dies as in the one that recovers."""

    app: Flask
    jobs: AsyncJobs
    engine: Engine

    def work_off(self) -> None:
        """Claim and run what is due, one job after the other, until nothing is."""
        parts = self.app.extensions["async_jobs"]
        executor = Executor(
            parts.registry, parts.reports, lambda: handler_context(self.app), lease=LEASE, result_limit=1000
        )
        while claims := parts.repository.claim(parts.registry.rules(), 1, LEASE):
            executor.run(claims[0])


def build(url: str, clock: Callable[[], datetime] | None = None) -> Application:
    """Make the application with a handler for each way through the life of a job."""
    app = Flask("consumer")
    app.config["SQLALCHEMY_DATABASE_URI"] = url
    db = SQLAlchemy(app)
    jobs = AsyncJobs()

    def have_effect(ctx: JobContext) -> None:
        ctx.progress(50)
        db.session.execute(insert(effects).values(job_id=str(ctx.job_id)))

    @jobs.handler("plain", max_attempts=MAX_ATTEMPTS)
    @jobs.handler("once")
    def plain(ctx: JobContext) -> None:
        have_effect(ctx)
        db.session.commit()

    @jobs.handler("own", max_attempts=MAX_ATTEMPTS)
    def own(ctx: JobContext) -> None:
        have_effect(ctx)
        ctx.complete(session=db.session)
        db.session.commit()

    @jobs.handler("atomic", max_attempts=MAX_ATTEMPTS, atomic=True)
    def atomic(ctx: JobContext) -> None:
        have_effect(ctx)

    @jobs.handler("retried", max_attempts=MAX_ATTEMPTS, retry_on=ConnectionError, backoff=1e-6)
    def retried(ctx: JobContext) -> None:
        plain(ctx)
        if ctx.attempt == 1:
            raise ConnectionError

    @jobs.handler("later", max_attempts=MAX_ATTEMPTS)
    def later(ctx: JobContext) -> None:
        plain(ctx)
        own = select(func.count()).where(effects.c.job_id == str(ctx.job_id))
        if db.session.execute(own).scalar_one() == 1:
            raise RetryLater(timedelta(0))

    @jobs.handler("failing", max_attempts=MAX_ATTEMPTS)
    def failing(ctx: JobContext) -> None:
        plain(ctx)
        raise JobFailed("Broken", code="broken")

    jobs.init_app(app, clock=clock)
    with app.app_context():
        return Application(app, jobs, db.engine)


def die(engine: Engine, moment: str, number: int) -> None:
    """Let this process be killed before or after its statement of this number."""
    numbers = count(1)

    def note(*statement: Any) -> None:
        if next(numbers) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(engine, f"{moment}_cursor_execute", note)


def live(url: str, type: str, key: str, moment: str, number: int) -> None:
    """Submit one job and work it off, unless death comes first."""
    application = build(url)
    with application.app.app_context():
        die(application.engine, moment, number)
        application.jobs.submit(type, idempotency_key=key)
        application.work_off()


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code = 1
            try:
                live(**json.loads(line))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
