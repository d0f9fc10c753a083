"""The commands below `flask async-jobs`.

Exit codes: 0 done, 1 failed, cancelled or ended before, 2 usage or not found, 3 still running.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any, NoReturn
from uuid import UUID

import click
from flask import current_app
from flask.cli import AppGroup

from flask_async_jobs.api import replies
from flask_async_jobs.ddl import ddl
from flask_async_jobs.errors import AsyncJobsError, StorageUnavailable
from flask_async_jobs.instance import Instance
from flask_async_jobs.migrations import VERSIONS, Migrator
from flask_async_jobs.states import CancelResult, JobStatus, JobView, uuid_form
from flask_async_jobs.submission import accept_payload, checked_owner, read_idempotency_key

ENDED_OTHERWISE = 1
USAGE = 2
STILL_RUNNING = 3

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def _instance() -> Instance:
    instance: Instance = current_app.extensions["async_jobs"]
    return instance


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"Error: {message}", err=True)
    raise SystemExit(code)


class _JobId(click.ParamType[UUID]):
    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:
        """Read the 36-character form of an id."""
        if isinstance(value, UUID):
            return value
        if not uuid_form.fullmatch(value):
            self.fail(f"{value!r} is not the id of a job", param, ctx)
        return UUID(value)


class _Reporting(AppGroup):
    """Ends a command with a message, not a traceback, when the library refuses something."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except StorageUnavailable as error:
            _fail(str(error), ENDED_OTHERWISE)
        except AsyncJobsError as error:
            _fail(str(error), USAGE)


async_jobs_commands = _Reporting("async-jobs", help="Asynchronous jobs: submit, follow, repair, migrate.")


@async_jobs_commands.command()
@_as_json
def types(as_json: bool) -> None:
    """List the registered types."""
    handlers = sorted(_instance().registry, key=lambda handler: handler.type)
    if as_json:
        click.echo(json.dumps([handler.type for handler in handlers]))
        return
    for handler in handlers:
        click.echo(f"{handler.type}{'  (detached)' if handler.options.detached else ''}")


@async_jobs_commands.command()
@click.argument("type")
@click.option("--payload", help="The payload, a JSON value.")
@click.option("--idempotency-key", help="The same key and work give the same job.")
@click.option("--owner", help="Who submits.")
@click.option("--force", is_flag=True, help="Run, even if the work completed within the freshness window.")
@click.option(
    "--wait",
    is_flag=False,
    flag_value=60.0,
    type=click.FloatRange(min=0),
    metavar="[SECONDS]",
    help="Wait until the job has ended, 60 seconds if no number is given. Other processes run it.",
)
@_as_json
def submit(
    type: str,
    payload: str | None,
    idempotency_key: str | None,
    owner: str | None,
    force: bool,
    wait: float | None,
    as_json: bool,
) -> None:
    """Make sure that the work of TYPE is done."""
    instance = _instance()
    handler = instance.registry.get(type)
    submission = instance.submit(
        handler,
        accept_payload(handler, payload, instance.settings.payload_max_bytes),
        idempotency_key=None if idempotency_key is None else read_idempotency_key(idempotency_key),
        owner=checked_owner(owner),
        force=force,
    )
    job = submission.job if wait is None else _wait(instance, submission.job, wait)
    if as_json:
        click.echo(json.dumps({**_as_dict(job), "disposition": submission.disposition}))
    else:
        click.echo(f"{job.job_id}  {job.status}  {submission.disposition}")
    if wait is not None:
        _exit_by(job)


@async_jobs_commands.command()
@click.argument("job_id", metavar="ID", type=_JobId())
@_as_json
def status(job_id: UUID, as_json: bool) -> None:
    """Show the state of a job."""
    job = _instance().find(job_id)
    if job is None:
        _fail(f"there is no job {job_id}", USAGE)
    if as_json:
        click.echo(json.dumps(_as_dict(job)))
        return
    for name, value in _as_dict(job).items():
        click.echo(f"{name}: {value}")


@async_jobs_commands.command()
@click.argument("job_id", metavar="ID", type=_JobId())
def cancel(job_id: UUID) -> None:
    """Cancel a job."""
    result, job = _instance().cancel(job_id)
    if result is CancelResult.NOT_FOUND or job is None:
        _fail(f"there is no job {job_id}", USAGE)
    if result is CancelResult.ALREADY_TERMINAL:
        _fail(f"the job is {job.status} already", ENDED_OTHERWISE)
    click.echo(f"{job.job_id}  {job.status}")


@async_jobs_commands.command()
def recover() -> None:
    """Make one pass over stranded jobs."""
    click.echo(f"{_instance().recovery.sweep()} jobs recovered")


@async_jobs_commands.command()
def schema() -> None:
    """Print the DDL of the tables."""
    instance = _instance()
    click.echo(ddl(instance.engine.dialect, instance.settings.schema), nl=False)


@async_jobs_commands.group()
def db() -> None:
    """Migrate the tables of an application that does not use Alembic itself."""


@db.command()
@click.argument("revision", default="head")
def upgrade(revision: str) -> None:
    """Go up to REVISION, the newest by default."""
    _migrator().upgrade(revision)


@db.command()
@click.argument("revision", default="-1")
def downgrade(revision: str) -> None:
    """Go down to REVISION, by one version by default; `base` drops the tables."""
    _migrator().downgrade(revision)


@db.command()
def current() -> None:
    """Show the version of the database."""
    click.echo(_migrator().current() or "none")


@db.command()
def location() -> None:
    """Print the folder of the versions, for `version_locations`."""
    click.echo(VERSIONS)


def _migrator() -> Migrator:
    instance = _instance()
    return Migrator(instance.engine, instance.settings.schema)


def _wait(instance: Instance, job: JobView, seconds: float) -> JobView:
    """Ask for the state of a job again and again until it has ended or `seconds` have passed."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not job.status.is_terminal and (left := deadline - time.monotonic()) > 0:
        pause.wait(min(left, instance.settings.sse_poll_interval.total_seconds()))
        job = instance.find(job.job_id) or job
    return job


def _exit_by(job: JobView) -> None:
    if not job.status.is_terminal:
        raise SystemExit(STILL_RUNNING)
    if job.status is not JobStatus.COMPLETED:
        raise SystemExit(ENDED_OTHERWISE)


def _as_dict(job: JobView) -> dict[str, Any]:
    body = replies.status_body(job)
    if job.error is not None:
        body["error"] = {"title": job.error.title, "detail": job.error.detail, "code": job.error.code}
    return body
