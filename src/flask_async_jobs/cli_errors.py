"""How the commands end when something is refused: with a message and an exit code, not with a traceback."""

from __future__ import annotations

from typing import Any, Final, NoReturn

import click
from flask.cli import AppGroup
from sqlalchemy.exc import DBAPIError

from flask_async_jobs.errors import AsyncJobsError, StorageUnavailable

ENDED_OTHERWISE: Final = 1
USAGE: Final = 2
STILL_RUNNING: Final = 3


def fail(message: str, code: int) -> NoReturn:
    """End the command."""
    click.echo(f"Error: {message}", err=True)
    raise SystemExit(code)


class ReportingGroup(AppGroup):
    """A group whose commands end with a message when the library or the database refuses something."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except StorageUnavailable as error:
            fail(str(error), ENDED_OTHERWISE)
        except DBAPIError as error:
            fail(f"the database refused: {type(error.orig).__name__}", ENDED_OTHERWISE)
        except (AsyncJobsError, ValueError) as error:
            fail(str(error), USAGE)
