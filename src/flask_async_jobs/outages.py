"""What goes wrong between the library and the database, told once."""

from __future__ import annotations

import logging
import time
from typing import Final

from sqlalchemy import exc

from flask_async_jobs.errors import StorageUnavailable

CALM: Final = 1.0
"""Seconds without a failure after which the next one is told again."""

UPGRADE: Final = "flask async-jobs db upgrade"

_log = logging.getLogger("flask_async_jobs")
UNAVAILABLE: Final = (
    exc.OperationalError,
    exc.InterfaceError,
    exc.InternalError,
    exc.NotSupportedError,  # a cached plan whose result type has changed
    exc.ProgrammingError,
    exc.TimeoutError,
    exc.DisconnectionError,
    exc.PendingRollbackError,
)
"""The errors that mean: the database cannot be asked at the moment."""

_outdated_states = {"42P01", "42703", "3F000"}


class Outages:
    """Writes one line to the log when the database cannot be asked, and one when it answers again."""

    def __init__(self) -> None:
        self._trouble: str | None = None
        self._troubled_at = 0.0

    def note(self, error: exc.SQLAlchemyError) -> None:
        """Tell what is wrong, unless that was the last thing that was told."""
        trouble = "tables" if _lacks_tables(error) else "connection"
        self._troubled_at = time.monotonic()
        if self._trouble == trouble:
            return
        self._trouble = trouble
        if trouble == "tables":
            _log.error(
                "the tables of flask-async-jobs are missing or older than the library: run '%s' "
                "(or 'alembic upgrade heads', if the application's migrations include the library's)",
                UPGRADE,
            )
        else:
            cause = getattr(error, "orig", None) or error
            _log.error("the database cannot be asked: %s", str(cause).strip().split("\n", 1)[0])

    def note_answer(self) -> None:
        """Take note that the database has answered."""
        if self._trouble is not None and time.monotonic() - self._troubled_at > CALM:
            self._trouble = None
            _log.info("the database answers again")


def may_have_taken_effect(error: StorageUnavailable) -> bool:
    """Return whether a statement was under way when its connection broke, so that what became of it is unknown."""
    cause = error.__cause__
    return isinstance(cause, exc.DBAPIError) and cause.connection_invalidated and cause.statement is not None


def _lacks_tables(error: exc.SQLAlchemyError) -> bool:
    cause = getattr(error, "orig", None)
    if getattr(cause, "sqlstate", None) in _outdated_states:
        return True
    return str(cause).startswith(("no such table", "no such column", "table async_jobs has no column"))
