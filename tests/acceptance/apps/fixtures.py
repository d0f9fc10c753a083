"""The fixtures of the scenarios: a pytest plugin, which test modules name and do not import."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.acceptance.apps.harness import CONSUMER, Consumer, consuming
from tests.databases import DIALECTS
from tests.servers.app_server import AppServer
from tests.servers.browser import Browser
from tests.servers.postgres import Databases
from tests.serving import Serve

ANSWERED = "answered %(s)s to %(U)s"


@pytest.fixture
def consumer(database_url: str, serve: Serve) -> Iterator[Consumer]:
    """The consumer application on each database in turn; nothing is served yet."""
    with consuming(database_url, serve) as made:
        yield made


@pytest.fixture
def postgres_consumer(postgres_url: str, serve: Serve) -> Iterator[Consumer]:
    """The consumer application on PostgreSQL; nothing is served yet."""
    with consuming(postgres_url, serve) as made:
        yield made


@pytest.fixture(scope="module", params=DIALECTS)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consumer]:
    """The consumer application on each database in turn, served by two workers for all tests of a module."""
    with _serving(request, tmp_path_factory) as consumer:
        yield consumer


@pytest.fixture(scope="module", params=DIALECTS)
def durable(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consumer]:
    """The application of `durable.py`, served like `served`, with freshness on."""
    application = CONSUMER.with_name("durable.py")
    with _serving(request, tmp_path_factory, application=application, freshness_enabled=True) as consumer:
        yield consumer


@pytest.fixture(scope="module", params=DIALECTS)
def streaming(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consumer]:
    """The consumer application, served like `served`, with frequent heartbeats and a log of every answer."""
    options = ("--threads", "16", "--access-logfile", "-", "--access-logformat", ANSWERED)
    with _serving(request, tmp_path_factory, *options, sse_heartbeat=0.2, sse_poll_interval=0.1) as consumer:
        yield consumer


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A Chromium for all tests of a module, which say that they need it."""
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@contextmanager
def _serving(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, *args: str, **served: Any
) -> Iterator[Consumer]:
    folder = tmp_path_factory.mktemp("served")

    def start(application: Path, *args: str, server: str, debug: bool, env: Mapping[str, str]) -> AppServer:
        return stack.enter_context(AppServer.gunicorn(application, *args, log=folder / "server.log", env=env))

    with ExitStack() as stack:
        url = stack.enter_context(_copied_database(request, folder))
        consumer = stack.enter_context(consuming(url, start))
        consumer.serve("--workers", "2", *(args or ("--threads", "4")), **served)
        yield consumer
        print(consumer.server.log_text())


@contextmanager
def _copied_database(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    if request.param == "sqlite":
        copy = shutil.copyfile(request.getfixturevalue("sqlite_template"), folder / "test.sqlite")
        yield f"sqlite:///{copy}"
        return
    server: Databases = request.getfixturevalue("postgres")
    name = f"served_{uuid4().hex}"
    try:
        yield server.create_database(name, request.getfixturevalue("postgres_template"))
    finally:
        server.drop_database(name)
