"""The commands below `flask async-jobs`.

Exit codes: 0 done, 1 failed, cancelled or ended before, 2 usage or not found, 3 still running.
"""

from __future__ import annotations

import json
import math
from contextlib import closing
from datetime import timedelta
from uuid import UUID

import click

from flask_async_jobs.api.results import located
from flask_async_jobs.cli_common import JobId, as_dict, as_json_option, current_instance
from flask_async_jobs.cli_db import db
from flask_async_jobs.cli_errors import ENDED_OTHERWISE, STILL_RUNNING, USAGE, ReportingGroup, fail
from flask_async_jobs.cli_upkeep import upkeep
from flask_async_jobs.events import follow
from flask_async_jobs.states import CancelResult, JobStatus, JobView
from flask_async_jobs.submission import WorkRequest, accept_payload, checked_owner, read_idempotency_key

_HEARTBEAT = 3_600.0


async_jobs_commands = ReportingGroup("async-jobs", help="Asynchronous jobs: submit, follow, repair, migrate.")
for each in (db, *upkeep.commands.values()):
    async_jobs_commands.add_command(each)


@async_jobs_commands.command()
@as_json_option
def types(as_json: bool) -> None:
    """List the registered types."""
    handlers = sorted(current_instance().registry, key=lambda handler: handler.type)
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
@as_json_option
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
    instance = current_instance()
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
        click.echo(json.dumps({**as_dict(located(instance, job)), "disposition": submission.disposition}))
    else:
        click.echo(f"{job.job_id}  {job.status}  {submission.disposition}")
    if wait is not None:
        _exit_by(job)


@async_jobs_commands.command()
@click.argument("job_id", metavar="ID", type=JobId())
@as_json_option
def status(job_id: UUID, as_json: bool) -> None:
    """Show the state of a job."""
    job = current_instance().find(job_id)
    if job is None:
        fail(f"there is no job {job_id}", USAGE)
    job = located(current_instance(), job)
    if as_json:
        click.echo(json.dumps(as_dict(job)))
        return
    for name, value in as_dict(job).items():
        click.echo(f"{name}: {value}")


@async_jobs_commands.command()
@click.argument("job_id", metavar="ID", type=JobId())
def watch(job_id: UUID) -> None:
    """Follow a job to its end, with a progress bar; exits by how it ended."""
    instance = current_instance()
    with closing(instance.watcher.subscribe(job_id, capped=False)) as subscription:
        job = instance.find(job_id)
        if job is None:
            fail(f"there is no job {job_id}", USAGE)
        with click.progressbar(length=100, label=job.type, show_eta=False) as bar:
            for state in follow(subscription, job, math.inf, _HEARTBEAT):
                if state is not None:
                    job = state
                    bar.update((job.percent_complete or 0) - bar.pos)
    click.echo(job.status)
    _exit_by(job)


@async_jobs_commands.command()
@click.argument("job_id", metavar="ID", type=JobId())
@as_json_option
def cancel(job_id: UUID, as_json: bool) -> None:
    """Cancel a job."""
    result, job = current_instance().cancel(job_id)
    if result is CancelResult.NOT_FOUND or job is None:
        fail(f"there is no job {job_id}", USAGE)
    if result is CancelResult.ALREADY_TERMINAL:
        fail(f"the job is {job.status} already", ENDED_OTHERWISE)
    click.echo(json.dumps(as_dict(job)) if as_json else f"{job.job_id}  {job.status}")


def _ended(job: JobView) -> bool:
    return job.status.is_terminal


def _exit_by(job: JobView) -> None:
    if not job.status.is_terminal:
        raise SystemExit(STILL_RUNNING)
    if job.status is not JobStatus.COMPLETED:
        raise SystemExit(ENDED_OTHERWISE)
