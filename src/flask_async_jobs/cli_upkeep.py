"""The commands below `flask async-jobs` that look at many jobs, look after them, or run them."""

from __future__ import annotations

import json
import signal
from queue import Empty, SimpleQueue
from typing import Any, Final
from uuid import UUID

import click

from flask_async_jobs.api import replies
from flask_async_jobs.cli_common import JobId, as_dict, as_json_option, current_instance
from flask_async_jobs.cli_errors import USAGE, ReportingGroup, fail
from flask_async_jobs.config import Refused, duration
from flask_async_jobs.ddl import ddl
from flask_async_jobs.states import JobStatus

_LATEST: Final = 1.0
"""Seconds after which a signal is seen that came in the instant in which the wait for it began."""

upkeep = ReportingGroup("upkeep")
"""Holds the commands until `cli` adds them to its own group."""


@upkeep.command()
@as_json_option
def recover(as_json: bool) -> None:
    """Make one pass over stranded jobs."""
    _told("recovered", current_instance().recovery.sweep(), as_json)


@upkeep.command()
@click.option("--older-than", metavar="DURATION", help="As ISO 8601 text, such as P1D; never less than RETENTION.")
@as_json_option
def purge(older_than: str | None, as_json: bool) -> None:
    """Remove jobs whose retention is over."""
    try:
        age = None if older_than is None else duration(older_than, zero=True)
    except Refused as refused:
        raise click.BadParameter(str(refused), param_hint="--older-than") from None
    _told("purged", current_instance().purge.sweep(age), as_json)


@upkeep.command()
def schema() -> None:
    """Print the DDL of the tables."""
    instance = current_instance()
    click.echo(ddl(instance.engine.dialect, instance.settings.schema), nl=False)


@upkeep.command("list")
@click.option("--type", help="Only this type.")
@click.option("--status", type=click.Choice(list(JobStatus), case_sensitive=False), help="Only this state.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most.")
@click.option("--after", type=JobId(), metavar="ID", help="Go on after this job.")
@as_json_option
def list_jobs(type: str | None, status: JobStatus | None, limit: int, after: UUID | None, as_json: bool) -> None:
    """List jobs, the newest first."""
    repository = current_instance().repository
    jobs = repository.newest(limit, type=type, status=status, after=after)
    if after is not None and not jobs and repository.find(after) is None:
        fail(f"there is no job {after}", USAGE)
    if as_json:
        click.echo(json.dumps([as_dict(job) for job in jobs]))
        return
    for job in jobs:
        click.echo(f"{job.job_id}  {job.status:10}  {replies.instant(job.created_at)}  {job.type}")


@upkeep.command()
@as_json_option
def stats(as_json: bool) -> None:
    """Count jobs by type and state. What concerns a process is about the one that runs this command."""
    instance = current_instance()
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


@upkeep.command()
def worker() -> None:
    """Run handlers until SIGTERM or SIGINT, then drain: no new jobs, and SHUTDOWN_TIMEOUT for running ones."""
    instance = current_instance()
    signals: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.put(number))
    instance.start(processing=True)
    click.echo(f"running {', '.join(sorted(handler.type for handler in instance.registry)) or 'no types'}")
    _wait_for_any(signals)
    instance.stop()


def _wait_for_any(signals: SimpleQueue[int]) -> None:
    """Wait until a handler puts a signal. A queue: unlike an event, it may be put to while this thread holds it.

    Python runs handlers between two instructions of the main thread, and a signal that comes just before the wait,
    or on another thread, does not end it. So no wait is endless.
    """
    while True:
        try:
            signals.get(timeout=_LATEST)
        except Empty:
            continue
        return


def _told(done: str, jobs: int, as_json: bool) -> None:
    click.echo(json.dumps({done: jobs}) if as_json else f"{jobs} jobs {done}")
