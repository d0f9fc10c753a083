"""What every test may use. All of it is lazy: a test that asks for no database starts none."""

from tests.databases import (
    breakable_postgres,
    database_url,
    empty_database_url,
    empty_postgres_url,
    empty_sqlite_url,
    engine,
    postgres,
    postgres_template,
    postgres_url,
    sqlite_template,
    sqlite_url,
)
from tests.heap import pytest_collection_finish
from tests.needs import pytest_configure, pytest_runtest_setup, pytest_terminal_summary
from tests.reports import pytest_runtest_makereport
from tests.serving import serve

__all__ = [
    "breakable_postgres",
    "database_url",
    "empty_database_url",
    "empty_postgres_url",
    "empty_sqlite_url",
    "engine",
    "postgres",
    "postgres_template",
    "postgres_url",
    "pytest_collection_finish",
    "pytest_configure",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
    "pytest_terminal_summary",
    "serve",
    "sqlite_template",
    "sqlite_url",
]
