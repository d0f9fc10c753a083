"""The demos of the examples as their readers run them."""

import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.acceptance.apps.harness import state_of
from tests.acceptance.apps.store import TERMINAL
from tests.servers.processes import start_process
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]


class Demo:
    """A running demo: its process, what it printed, and a client for it."""

    def __init__(self, module: str, log: Path, settings: Mapping[str, str]) -> None:
        self.log = log
        self.http = httpx.Client(timeout=30)
        self.process = start_process([sys.executable, "-m", module], log, env={**os.environ, **settings}, cwd=ROOT)

    def wait_until_it_serves(self) -> None:
        """Return when the demo has printed its address."""
        self.http.base_url = wait_until(self._address, 60, self.printed)

    def printed(self) -> str:
        """What the demo wrote so far."""
        return self.log.read_text()

    def stop(self, how: signal.Signals) -> int:
        """End the demo and return its exit code."""
        self.http.close()
        self.process.send_signal(how)
        return self.process.wait(20)

    def poll(self, answer: httpx.Response) -> httpx.Response:
        """Follow `Location` until the job has ended."""
        assert answer.status_code == 202, answer.text
        return wait_until(lambda: self._ended(answer.headers["Location"]), 60, self.printed)

    def _ended(self, location: str) -> httpx.Response | None:
        status = self.http.get(location)
        return status if state_of(status) in TERMINAL else None

    def _address(self) -> str | None:
        if self.process.poll() is not None:
            raise AssertionError(f"the demo ended:\n{self.printed()}")
        found = re.search(r"Swagger UI\s+(http://127\.0\.0\.1:\d+)/docs/", self.printed())
        return found and found[1]


@contextmanager
def running(module: str, url: str, log: Path, port: int = 0, **settings: str) -> Iterator[Demo]:
    """The demo of `module` on a database, serving; at the end it is killed, and a test that fails shows its log."""
    demo = Demo(module, log, {"DATABASE_URL": url, "PORT": str(port), **settings})
    try:
        demo.wait_until_it_serves()
        yield demo
    finally:
        demo.http.close()
        demo.process.kill()
        demo.process.wait()
        print(demo.printed())
