"""The commands below `flask async-jobs db`.

They import Alembic when they run: it would be a tenth of what the library costs a process that starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from flask_async_jobs.cli_common import current_instance
from flask_async_jobs.cli_errors import USAGE, ReportingGroup, fail

if TYPE_CHECKING:
    from flask_async_jobs.migrations import Migrator


class MigratingGroup(ReportingGroup):
    """A group whose commands end with a message when Alembic refuses something, too."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        from alembic.util.exc import CommandError

        try:
            return super().invoke(ctx)
        except CommandError as error:
            fail(str(error), USAGE)


db = MigratingGroup("db", help="Migrate the tables of an application that does not use Alembic itself.")


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
    from flask_async_jobs.migrations import VERSIONS

    click.echo(VERSIONS)


def _move(step: Callable[[Migrator], None]) -> None:
    migrator = _migrator()
    before = migrator.current()
    step(migrator)
    click.echo(f"{before or 'none'} -> {migrator.current() or 'none'}")


def _migrator() -> Migrator:
    from flask_async_jobs.migrations import Migrator

    instance = current_instance()
    return Migrator(instance.engine, instance.settings.schema)
