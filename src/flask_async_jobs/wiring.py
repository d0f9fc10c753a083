"""What the library needs of one Flask application: its engine, and the context that a handler runs in."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flask import Flask
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.orm import ORMExecuteState, Session

from flask_async_jobs.config import Settings
from flask_async_jobs.errors import ConfigurationError

_log = logging.getLogger("flask_async_jobs")

EngineSource = Engine | Callable[[], Engine]


def engine_source(app: Flask, engine: EngineSource | None, settings: Settings) -> Callable[[], Engine]:
    """Return a callable that gives the application's engine when it is first needed. Connects to nothing.

    Raises:
        ConfigurationError: There is no engine to be had, or two are named.
    """
    if engine is not None and settings.database_url is not None:
        raise ConfigurationError("ASYNC_JOBS_DATABASE_URL and engine= name two databases: give one of them")
    if isinstance(engine, Engine):
        return lambda: engine
    if engine is not None:
        return _in_context(app, engine)
    if settings.database_url is not None:
        return lambda: own_engine(str(settings.database_url), settings.processing_concurrency_limit)
    if "sqlalchemy" in app.extensions:
        return _in_context(app, lambda: app.extensions["sqlalchemy"].engine)
    raise ConfigurationError(
        "there is no database: initialise Flask-SQLAlchemy before init_app, or pass engine=, "
        "or set ASYNC_JOBS_DATABASE_URL, for example to 'postgresql+psycopg://user@host/name'"
    )


def _in_context(app: Flask, source: Callable[[], Engine]) -> Callable[[], Engine]:
    def engine() -> Engine:
        with app.app_context():
            return source()

    return engine


def own_engine(url: str, handlers: int) -> Engine:
    """Create the engine of an application that has none: a connection for each handler's reports and some more.

    On SQLite the database is in WAL mode, and a writer waits up to five seconds for another.
    """
    address = make_url(url)
    in_memory = address.get_backend_name() == "sqlite" and address.database in (None, "", ":memory:")
    engine = create_engine(address) if in_memory else create_engine(address, pool_size=5, max_overflow=handlers)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_pragmas)
    return engine


def _set_pragmas(connection: Any, record: Any) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=5000"):
        connection.execute(f"PRAGMA {pragma}").close()


@contextmanager
def handler_context(app: Flask) -> Iterator[None]:
    """Give a handler a fresh application context, and an empty `db.session` where Flask-SQLAlchemy is in use.

    What the handler leaves uncommitted in the session is rolled back, with a warning.
    """
    with app.app_context():
        extension = app.extensions.get("sqlalchemy")
        if extension is None:
            yield
            return
        watch = _SessionWatch(extension.session())
        try:
            yield
            if watch.has_unsaved_changes:
                _log.warning("a handler left changes in db.session that it did not commit; they are rolled back")
        finally:
            extension.session.remove()


class _SessionWatch:
    """Knows whether a session holds changes that no commit has saved, flushed or not."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._written = False
        event.listen(session, "after_flush", self._note_flush)
        event.listen(session, "do_orm_execute", self._note_statement)
        event.listen(session, "after_commit", self._note_end)
        event.listen(session, "after_rollback", self._note_end)

    @property
    def has_unsaved_changes(self) -> bool:
        session = self._session
        return self._written or bool(session.new or session.dirty or session.deleted)

    def _note_flush(self, session: Session, context: Any) -> None:
        self._written = True

    def _note_statement(self, state: ORMExecuteState) -> None:
        self._written = self._written or state.is_insert or state.is_update or state.is_delete

    def _note_end(self, session: Session) -> None:
        self._written = False
