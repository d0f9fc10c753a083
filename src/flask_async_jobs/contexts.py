"""The context that a handler runs in, and what becomes of its `db.session`."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from flask import Flask
from sqlalchemy import Connection, event
from sqlalchemy.orm import Session, SessionTransaction

_reading: Final = re.compile(r"\s*(?:SELECT|VALUES|SHOW|EXPLAIN|PRAGMA|SET|SAVEPOINT|RELEASE|ROLLBACK)\b", re.I)
_writing_words: Final = re.compile(r"\b(?:INSERT|UPDATE|DELETE|MERGE)\b", re.I)

_log = logging.getLogger("flask_async_jobs")


class _Watch:
    """Knows whether the sessions of one handler hold changes that no commit has saved."""

    def __init__(self) -> None:
        self._written: set[Connection] = set()

    def follow(self, connection: Connection) -> None:
        """Note what is written on a connection, and when that is committed or rolled back as a whole."""
        event.listen(connection, "before_cursor_execute", self._note_statement)
        event.listen(connection, "commit", self._written.discard)
        event.listen(connection, "rollback", self._written.discard)

    def has_unsaved(self, session: Session) -> bool:
        """Return whether there are changes, flushed or not."""
        return bool(self._written or session.new or session.dirty or session.deleted)

    def _note_statement(
        self, connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, many: bool
    ) -> None:
        if not _only_reads(statement):
            self._written.add(connection)


_watch: ContextVar[_Watch | None] = ContextVar("flask_async_jobs_watch", default=None)


def watch_sessions(app: Flask) -> None:
    """Let the sessions of Flask-SQLAlchemy tell the handler that uses them when they begin a transaction.

    Sits on their factory, because a handler may replace its session. Does nothing for a session of a request.
    """
    extension = app.extensions.get("sqlalchemy")
    if extension is not None and not event.contains(extension.session, "after_begin", _follow):
        event.listen(extension.session, "after_begin", _follow)


def _follow(session: Session, transaction: SessionTransaction, connection: Connection) -> None:
    watch = _watch.get()
    if watch is not None and not transaction.nested:
        watch.follow(connection)


@contextmanager
def handler_context(app: Flask) -> Iterator[Any]:
    """Give a handler a fresh application context, and an empty `db.session` where Flask-SQLAlchemy is in use.

    Yields that session, or None. What the handler leaves uncommitted in it is rolled back, with a warning.
    """
    with app.app_context():
        extension = app.extensions.get("sqlalchemy")
        if extension is None:
            yield None
            return
        watch = _Watch()
        token = _watch.set(watch)
        try:
            yield extension.session
            if watch.has_unsaved(extension.session()):
                _log.warning("a handler left changes in db.session that it did not commit; they are rolled back")
        finally:
            _watch.reset(token)
            _remove(extension.session)


def _remove(session: Any) -> None:
    """Remove the session; a connection that is gone took its transaction with it, and is no failure of the job."""
    try:
        session.rollback()  # on SQLite closing does not end a transaction whose commit failed
        session.remove()
    except Exception:
        _log.warning("what a handler left in db.session could not be rolled back", exc_info=True)
        session.registry.clear()


def _only_reads(statement: str) -> bool:
    return bool(_reading.match(statement)) or (
        statement.lstrip()[:4].upper() == "WITH" and not _writing_words.search(statement)
    )
