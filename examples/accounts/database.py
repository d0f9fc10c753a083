"""The application's own engine and schema."""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection
from typing import Any

from alembic import command
from alembic.config import Config
from flask import Flask
from sqlalchemy import Engine, event

import flask_async_jobs

MIGRATIONS = Path(__file__).resolve().parent / "migrations"
LIBRARY_VERSIONS = Path(flask_async_jobs.__file__).resolve().parent / "migrations" / "versions"
BUSY_TIMEOUT_MS = 10_000


def normalise(url: str) -> str:
    """Return `url` with the driver that this application installs, psycopg 3, where it names none."""
    scheme, separator, rest = url.partition("://")
    return f"postgresql+psycopg://{rest}" if separator and scheme in {"postgres", "postgresql"} else url


def prepare_sqlite(engine: Engine) -> None:
    """Let readers and one writer work side by side on SQLite; other databases need nothing."""
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", set_pragmas)


def set_pragmas(connection: Connection, _record: Any) -> None:
    """Wait for a busy database instead of failing at once, and write ahead."""
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def migrate(app: Flask) -> None:
    """Bring the tables of the application and of the library up to their newest version."""
    command.upgrade(migration_config(app), "heads")


def migration_config(app: Flask) -> Config:
    """Return Alembic's configuration: two version folders, the application's and the library's."""
    config = Config()
    config.set_main_option("script_location", literal(MIGRATIONS))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", f"{literal(MIGRATIONS / 'versions')}\n{literal(LIBRARY_VERSIONS)}")
    config.attributes["app"] = app
    return config


def literal(path: Path) -> str:
    """Return `path` for a configuration file, where a per cent sign has a meaning."""
    return str(path).replace("%", "%%")
