"""A WSGI application served by a real process, as its users would run it."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.servers.processes import free_port, start_process
from tests.waiting import wait_until

START_TIMEOUT = 30
STOP_TIMEOUT = 10
PORT_TAKEN = b" in use"
NOT_INHERITED = re.compile(r"FLASK_|GUNICORN_|WERKZEUG_|ASYNC_JOBS_|DATABASE_URL$|PYTHONWARNINGS$|WEB_CONCURRENCY$")


class AppServer:
    """A process that serves the application of one Python file (`app` or `create_app()`) on 127.0.0.1.

    Made by `flask` or `gunicorn`, started by `start` or as a context manager, which at the end kills whatever
    is left of it. After its end it can be started again: same port, and the log goes on.
    """

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path) -> None:
        """Prepare a server; `{port}` in the command becomes the port."""
        self.log = log
        self._command = command
        self._env = _environment(env)
        self._cwd = cwd
        self._port: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @classmethod
    def flask(
        cls,
        application: Path,
        *args: str,
        log: Path,
        debug: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> Self:
        """`flask run`; with `debug` under the reloader, so that `pid` is the reloader's."""
        target = ["--app", str(application.resolve())]
        options = ["--host", "127.0.0.1", "--port", "{port}", *(["--debug"] if debug else []), *args]
        command = [sys.executable, "-m", "flask", *target, "run", *options]
        return cls(command, log, env or {}, application.resolve().parent)

    @classmethod
    def gunicorn(cls, application: Path, *args: str, log: Path, env: Mapping[str, str] | None = None) -> Self:
        """`gunicorn` with `args`; `pid` is the arbiter's."""
        root, module = _module_of(application.resolve())
        options = ["--no-control-socket", "--bind", "127.0.0.1:{port}", "--pythonpath", str(root), *args]
        command = [sys.executable, "-m", "gunicorn", *options, f"{module}:{_callable_of(application)}"]
        return cls(command, log, env or {}, application.resolve().parent)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        """The root of the application, without a final slash; it stays the same over restarts."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The id of the process that was started, which may have children."""
        return self._started().pid

    @property
    def is_running(self) -> bool:
        """Whether the started process is still there."""
        return self._process is not None and self._process.poll() is None

    def log_text(self) -> str:
        """What the server wrote so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def start(self) -> Self:
        """Start the process and return when its port is open. No request is sent: that could start workers.

        If the port was taken meanwhile, another one is tried, unless the server had that port before.
        """
        if self.is_running:
            raise RuntimeError("the server is running")
        fresh = self._port is None
        self._process = None
        try:
            wait_until(lambda: self._opened(fresh), START_TIMEOUT, lambda: f"a port:\n{self.log_text()}")
        except BaseException:
            self._kill_group()
            raise
        return self

    def terminate(self, how: int = signal.SIGTERM) -> None:
        """Send a signal to the started process alone."""
        self._started().send_signal(how)

    def wait(self, timeout: float = 15) -> int:
        """Wait for the end of the started process and return its exit code, -N for signal N.

        Raises:
            subprocess.TimeoutExpired: It did not end in time.
        """
        return self._started().wait(timeout)

    def kill(self) -> None:
        """End the process and its whole group with SIGKILL; harmless when they are gone or never were.

        Returns when the port is closed: children that are still dying would take connections.
        """
        self._kill_group()
        if self._process is not None:
            wait_until(lambda: not self._port_open(), STOP_TIMEOUT, f"the end of {self.url}")

    def _kill_group(self) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process

    def _opened(self, fresh: bool) -> bool:
        if self._process is None or self._lost_the_port():
            self._kill_group()
            if fresh:
                self._port = free_port()
            self._process = self._launch()
        if self._process.poll() is not None and not self._lost_the_port():
            raise RuntimeError(f"the server ended with {self._process.returncode}:\n{self.log_text()}")
        return self._port_open() and not self._lost_the_port()

    def _launch(self) -> subprocess.Popen[bytes]:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        command = [word.replace("{port}", str(self._port)) for word in self._command]
        return start_process(command, self.log, env=self._env, cwd=self._cwd)

    def _lost_the_port(self) -> bool:
        """Whether the process found the port taken; gunicorn then stays and tries again."""
        return PORT_TAKEN in self.log.read_bytes()[self._log_start :].lower()

    def _port_open(self) -> bool:
        assert self._port is not None
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of the tests, less what would configure a server or an application, plus `extra`."""
    inherited = {name: value for name, value in os.environ.items() if not NOT_INHERITED.match(name)}
    return {**inherited, "PYTHONUNBUFFERED": "1", **extra}


def _module_of(application: Path) -> tuple[Path, str]:
    """The import root of a file and its dotted name, packages included, as `flask --app` sees it."""
    root, names = application.parent, [application.stem]
    while (root / "__init__.py").exists():
        names.insert(0, root.name)
        root = root.parent
    return root, ".".join(names)


def _callable_of(application: Path) -> str:
    """What gunicorn shall serve: `app` where the file assigns it, else its factory if it has one."""
    source = application.read_text()
    has_app = re.search(r"^app\s*[:=]", source, re.MULTILINE)
    has_factory = re.search(r"^def create_app\(", source, re.MULTILINE)
    return "create_app()" if has_factory and not has_app else "app"
