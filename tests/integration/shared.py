"""One database for all the tests of a module, emptied before each: much faster than one for each."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import getpid
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from flask_async_jobs.models import Base
from tests.databases import DIALECTS


def module_database(
    name: str, *tables: str, prepare: Callable[[Engine], object] = lambda engine: None
) -> tuple[Any, Any]:
    """Return the fixtures `shared`, the database of a module, and `engine`, the same one emptied for each test.

    Args:
        name: What tells it from the databases of other modules.
        tables: Which tables are emptied beside the library's.
        prepare: Adds to the library's tables what the module needs.
    """

    @pytest.fixture(scope="module", params=DIALECTS)
    def shared(request: pytest.FixtureRequest) -> Iterator[Engine]:
        with _shared_database(request, request.param, name) as engine:
            prepare(engine)
            yield engine

    @pytest.fixture
    def engine(shared: Engine) -> Engine:
        return empty(shared, *tables)

    return shared, engine


@contextmanager
def _shared_database(request: pytest.FixtureRequest, dialect: str, name: str) -> Iterator[Engine]:
    """Give an engine on a new database with the library's tables; `name` tells it from those of other modules."""
    if dialect == "sqlite":
        path = request.getfixturevalue("tmp_path_factory").mktemp(name) / "shared.sqlite"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        engine = create_engine(f"sqlite:///{path}")
        yield engine
        engine.dispose()
        return
    server, database = request.getfixturevalue("postgres"), f"{name}_{getpid()}"
    engine = create_engine(server.create_database(database, request.getfixturevalue("postgres_template")))
    yield engine
    engine.dispose()
    server.drop_database(database)


def empty(engine: Engine, *more: str) -> Engine:
    """Delete every row of the library's tables, and of `more`."""
    with engine.begin() as connection:
        for table in [*more, *(table.name for table in reversed(Base.metadata.sorted_tables))]:
            connection.execute(text(f"DELETE FROM {table}"))
    return engine
