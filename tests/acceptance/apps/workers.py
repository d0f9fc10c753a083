"""`flask async-jobs worker` as a real process, which serves nothing."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.acceptance.apps.harness import CONSUMER, SHORT, Consumer, environment
from tests.servers.app_server import NOT_INHERITED
from tests.servers.processes import start_process
from tests.waiting import wait_until

COMMAND = [sys.executable, "-m", "flask", "--app", str(CONSUMER), "async-jobs", "worker"]
READY = "running "


class Worker:
    """A worker process on the database of a consumer; `settings` are as for `Consumer.serve`."""

    def __init__(self, url: str, log: Path, **settings: Any) -> None:
        inherited = {name: value for name, value in os.environ.items() if not NOT_INHERITED.match(name)}
        env = {**inherited, "PYTHONUNBUFFERED": "1", **environment(url, **{**SHORT, **settings})}
        self._log = log
        self._process = start_process(COMMAND, log, env=env, cwd=CONSUMER.parent)

    @property
    def pid(self) -> int:
        return self._process.pid

    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_until_ready(self) -> None:
        """Wait until it says that it runs handlers."""
        wait_until(self._is_ready, 30, lambda: f"the worker:\n{self.log_text()}")

    def signal(self, how: int) -> None:
        self._process.send_signal(how)

    def wait(self, timeout: float = 15) -> int:
        """Wait for its end and return its exit code."""
        return self._process.wait(timeout)

    def kill(self) -> None:
        """End it and whatever it started; harmless when it is gone."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def _is_ready(self) -> bool:
        if READY in self.log_text():
            return True
        if self._process.poll() is not None:
            raise RuntimeError(f"the worker ended with {self._process.returncode}:\n{self.log_text()}")
        return False


@contextmanager
def working(consumer: Consumer, folder: Path, *, dies: bool = False, **settings: Any) -> Iterator[Worker]:
    """A worker that is ready; at the end it is killed, and a test that fails shows its log.

    One that `dies` has jobs that end it, maybe before it has said that it is ready.
    """
    worker = Worker(consumer.store.url, folder / f"worker-{len(list(folder.glob('worker-*')))}.log", **settings)
    try:
        if not dies:
            worker.wait_until_ready()
        yield worker
    finally:
        worker.kill()
        print(f"--- worker {worker.pid}\n{worker.log_text()}")
