"""The commands below `flask async-jobs db`."""

from __future__ import annotations

from collections.abc import Callable

import click

from flask_async_jobs.cli_common import current_instance
from flask_async_jobs.cli_errors import ReportingGroup
from flask_async_jobs.migrations import VERSIONS, Migrator

db = ReportingGroup("db", help="Migrate the tables of an application that does not use Alembic itself.")


@db.command()
@click.argument("revision", default="head")
def upgrade(revision: str) -> None:
    """Go up to REVISION, the newest by default."""
    _move(lambda migrator: migrator.upgrade(revision))


@db.command()
@click.argument("revision", default="-1")
def downgrade(revision: str) -> None:
    """Go down to REVISION, by one version by default; `base` drops the tables."""
    _move(lambda migrator: migrator.downgrade(revision))


@db.command()
def current() -> None:
    """Show the version of the database."""
    click.echo(_migrator().current() or "none")


@db.command()
def location() -> None:
    """Print the folder of the versions, for `version_locations`."""
    click.echo(VERSIONS)


def _move(step: Callable[[Migrator], None]) -> None:
    migrator = _migrator()
    before = migrator.current()
    step(migrator)
    click.echo(f"{before or 'none'} -> {migrator.current() or 'none'}")


def _migrator() -> Migrator:
    instance = current_instance()
    return Migrator(instance.engine, instance.settings.schema)
