"""Databases for tests: migrated once, then copied for every test that wants one."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from os import getpid
from pathlib import Path

import pytest
from sqlalchemy import Engine, NullPool, create_engine

from tests.servers.postgres import Databases, PostgresInMemory, PostgresServer, override

DIALECTS = ["sqlite", "postgresql"]
_numbers = count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Databases]:
    """The PostgreSQL of this test run, or the one that TEST_DATABASE_URL names."""
    if url := override():
        yield Databases(url)
        return
    with PostgresInMemory() as server:
        yield server


@pytest.fixture
def breakable_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of this test alone, to be stopped, killed and restarted; it costs two seconds."""
    with PostgresInMemory() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres: Databases) -> Iterator[str]:
    """The name of a PostgreSQL database with the library's tables and no rows, to be copied."""
    with _database(postgres) as url:
        create_tables(url)
        yield url.rpartition("/")[2]


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file in WAL mode with the library's tables and no rows, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "template.sqlite"
    create_tables(_sqlite_url(path))
    return path


@pytest.fixture
def postgres_url(postgres: Databases, postgres_template: str) -> Iterator[str]:
    """A PostgreSQL database of this test, with the library's tables and no rows."""
    with _database(postgres, postgres_template) as url:
        yield url


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """A SQLite database of this test, with the library's tables and no rows."""
    return _sqlite_url(Path(shutil.copyfile(sqlite_template, tmp_path / "test.sqlite")))


@pytest.fixture
def empty_postgres_url(postgres: Databases) -> Iterator[str]:
    """A PostgreSQL database of this test without any table."""
    with _database(postgres) as url:
        yield url


@pytest.fixture
def empty_sqlite_url(tmp_path: Path) -> str:
    """A SQLite database of this test without any table."""
    return _sqlite_url(tmp_path / "empty.sqlite")


@pytest.fixture(params=DIALECTS)
def database_url(request: pytest.FixtureRequest) -> str:
    """On each database in turn: one with the library's tables and no rows."""
    name = {"sqlite": "sqlite_url", "postgresql": "postgres_url"}[request.param]
    return str(request.getfixturevalue(name))


@pytest.fixture(params=DIALECTS)
def empty_database_url(request: pytest.FixtureRequest) -> str:
    """On each database in turn: one without any table."""
    name = {"sqlite": "empty_sqlite_url", "postgresql": "empty_postgres_url"}[request.param]
    return str(request.getfixturevalue(name))


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine as an application would make it, on `database_url`."""
    engine = create_engine(database_url)
    yield engine
    engine.dispose()


@contextmanager
def _database(server: Databases, template: str | None = None) -> Iterator[str]:
    name = f"test_{getpid()}_{next(_numbers)}"
    url = server.create_database(name, template)
    try:
        yield url
    finally:
        server.drop_database(name)


def create_tables(url: str) -> None:
    """Give a database the tables of the library."""
    from flask_async_jobs.models import Base  # late: only tests with a database need the library to be whole

    engine = create_engine(url, poolclass=NullPool)  # a template must have no connection left
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    Base.metadata.create_all(engine)
    engine.dispose()


def _sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"
