"""The engine of a Flask application: given, found through Flask-SQLAlchemy, or made from a URL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flask import Flask
from sqlalchemy import Engine, create_engine, event, make_url

from flask_async_jobs.config import Settings
from flask_async_jobs.errors import ConfigurationError

CONNECT_TIMEOUT: Final = 5
"""Seconds: a driver's own limit is minutes."""

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
    options: dict[str, Any] = {} if in_memory else {"pool_size": 5, "max_overflow": handlers}
    if address.get_backend_name() == "postgresql" and "connect_timeout" not in address.query:
        options["connect_args"] = {"connect_timeout": CONNECT_TIMEOUT}
    engine = create_engine(address, **options)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_pragmas)
    return engine


def _set_pragmas(connection: Any, record: Any) -> None:
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=5000"):
        connection.execute(f"PRAGMA {pragma}").close()
