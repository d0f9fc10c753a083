"""The commands below `flask async-jobs`.

Exit codes: 0 done, 1 failed, cancelled or ended before, 2 usage or not found, 3 still running.
"""

from __future__ import annotations

import json
import math
import signal
import threading
from contextlib import closing
from datetime import timedelta
from typing import Any
from uuid import UUID

import click
from flask import current_app

from flask_async_jobs.api import replies
from flask_async_jobs.cli_db import db
from flask_async_jobs.cli_errors import ENDED_OTHERWISE, STILL_RUNNING, USAGE, ReportingGroup, fail
from flask_async_jobs.config import Refused, duration
from flask_async_jobs.ddl import ddl
from flask_async_jobs.events import follow
from flask_async_jobs.instance import Instance
from flask_async_jobs.states import CancelResult, JobStatus, JobView, uuid_form
from flask_async_jobs.submission import WorkRequest, accept_payload, checked_owner, read_idempotency_key

_HEARTBEAT = 3_600.0
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def _instance() -> Instance:
    instance: Instance = current_app.extensions["async_jobs"]
    return instance


class JobId(click.ParamType[UUID]):
    """The id of a job, in its 36-character form."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:
        """Read the 36-character form of an id."""
        if isinstance(value, UUID):
            return value
        if not uuid_form.fullmatch(value):
            self.fail(f"{value!r} is not the id of a job", param, ctx)
        return UUID(value)


async_jobs_commands = ReportingGroup("async-jobs", help="Asynchronous jobs: submit, follow, repair, migrate.")
async_jobs_commands.add_command(db)


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
        WorkRequest(
            handler,
            accept_payload(handler, payload, instance.settings.payload_max_bytes),
            idempotency_key=None if idempotency_key is None else read_idempotency_key(idempotency_key),
            owner=checked_owner(owner),
            force=force,
        )
    )
    job = submission.job
    if wait is not None:
        job = instance.wait(job.job_id, _ended, timedelta(seconds=wait), capped=False) or job
    if as_json:
        click.echo(json.dumps({**_as_dict(job), "disposition": submission.disposition}))
    else:
        click.echo(f"{job.job_id}  {job.status}  {submission.disposition}")
    if wait is not None:
        _exit_by(job)


@async_jobs_commands.command()
@click.argument("job_id", metavar="ID", type=JobId())
@_as_json
def status(job_id: UUID, as_json: bool) -> None:
    """Show the state of a job."""
    job = _instance().find(job_id)
    if job is None:
        fail(f"there is no job {job_id}", USAGE)
    if as_json:
        click.echo(json.dumps(_as_dict(job)))
        return
    for name, value in _as_dict(job).items():
        click.echo(f"{name}: {value}")


@async_jobs_commands.command()
@click.argument("job_id", metavar="ID", type=JobId())
def watch(job_id: UUID) -> None:
    """Follow a job to its end, with a progress bar; exits by how it ended."""
    instance = _instance()
    with closing(instance.watcher.subscribe(job_id, capped=False)) as subscription:
        job = instance.find(job_id)
        if job is None:
            fail(f"there is no job {job_id}", USAGE)
        with click.progressbar(length=100, label=job.type, show_eta=False) as bar:
            for event in follow(subscription, job, math.inf, _HEARTBEAT):
                if event is not None:
                    job = event.job
                    bar.update((job.percent_complete or 0) - bar.pos)
    click.echo(job.status)
    _exit_by(job)


@async_jobs_commands.command()
@click.argument("job_id", metavar="ID", type=JobId())
def cancel(job_id: UUID) -> None:
    """Cancel a job."""
    result, job = _instance().cancel(job_id)
    if result is CancelResult.NOT_FOUND or job is None:
        fail(f"there is no job {job_id}", USAGE)
    if result is CancelResult.ALREADY_TERMINAL:
        fail(f"the job is {job.status} already", ENDED_OTHERWISE)
    click.echo(f"{job.job_id}  {job.status}")


@async_jobs_commands.command()
def recover() -> None:
    """Make one pass over stranded jobs."""
    click.echo(f"{_instance().recovery.sweep()} jobs recovered")


@async_jobs_commands.command()
@click.option("--older-than", metavar="DURATION", help="As ISO 8601 text, such as P1D; never less than RETENTION.")
def purge(older_than: str | None) -> None:
    """Remove jobs whose retention is over."""
    try:
        age = None if older_than is None else duration(older_than, zero=True)
    except Refused as refused:
        raise click.BadParameter(str(refused), param_hint="--older-than") from None
    click.echo(f"{_instance().purge.sweep(age)} jobs purged")


@async_jobs_commands.command()
def schema() -> None:
    """Print the DDL of the tables."""
    instance = _instance()
    click.echo(ddl(instance.engine.dialect, instance.settings.schema), nl=False)


@async_jobs_commands.command("list")
@click.option("--type", help="Only this type.")
@click.option("--status", type=click.Choice(list(JobStatus), case_sensitive=False), help="Only this state.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most.")
@click.option("--after", type=JobId(), metavar="ID", help="Go on after this job.")
@_as_json
def list_jobs(type: str | None, status: JobStatus | None, limit: int, after: UUID | None, as_json: bool) -> None:
    """List jobs, the newest first."""
    jobs = _instance().repository.newest(limit, type=type, status=status, after=after)
    if as_json:
        click.echo(json.dumps([_as_dict(job) for job in jobs]))
        return
    for job in jobs:
        click.echo(f"{job.job_id}  {job.status:10}  {replies.instant(job.created_at)}  {job.type}")


@async_jobs_commands.command()
@_as_json
def stats(as_json: bool) -> None:
    """Count jobs by type and state. What concerns a process is about the one that runs this command."""
    instance = _instance()
    counts = instance.repository.counts()
    pending = [count.age.total_seconds() for count in counts if count.status == JobStatus.PENDING]
    figures: dict[str, Any] = {
        "jobs": [{"type": count.type, "status": count.status, "jobs": count.jobs} for count in counts],
        "oldestPendingSeconds": round(max(pending), 3) if pending else None,
        **instance.process_stats(),
    }
    if as_json:
        click.echo(json.dumps(figures))
        return
    for count in counts:
        click.echo(f"{count.type:24}  {count.status:10}  {count.jobs:>8}")
    for name, value in list(figures.items())[1:]:
        click.echo(f"{name}: {value}")


@async_jobs_commands.command()
def worker() -> None:
    """Run handlers until SIGTERM or SIGINT, then drain: no new jobs, and SHUTDOWN_TIMEOUT for running ones."""
    instance = _instance()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    instance.start(processing=True)
    click.echo(f"running {', '.join(sorted(handler.type for handler in instance.registry)) or 'no types'}")
    stop.wait()
    instance.stop()


def _ended(job: JobView) -> bool:
    return job.status.is_terminal


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
