"""Applications served by real processes, for the length of a test."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.servers.app_server import AppServer


class Serve(Protocol):
    """What the fixture `serve` gives."""

    def __call__(
        self,
        application: Path,
        *args: str,
        server: str = "flask",
        debug: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> AppServer:
        """Serve the application of a Python file by `flask` or `gunicorn` with `args`; it is started."""


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start servers that end with the test; a test that fails shows their logs."""
    servers: list[AppServer] = []

    def start(
        application: Path,
        *args: str,
        server: str = "flask",
        debug: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> AppServer:
        log = tmp_path / f"server-{len(servers) + 1}.log"
        match server:
            case "flask":
                made = AppServer.flask(application, *args, log=log, debug=debug, env=env)
            case "gunicorn":
                made = AppServer.gunicorn(application, *args, log=log, env=env)
            case _:
                raise ValueError(f"no such server: {server}")
        servers.append(made)
        return stack.enter_context(made)

    with ExitStack() as stack:
        yield start
    for made in servers:
        print(f"--- {made.log.name}\n{made.log_text()}")
