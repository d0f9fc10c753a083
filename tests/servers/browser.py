"""Chromium without a window, driven by its DevTools protocol over a pair of sockets."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.servers.processes import start_process

ANSWER_TIMEOUT = 30
FLAGS = [
    "--headless",
    "--no-sandbox",  # the tests may run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--remote-debugging-pipe",  # reads commands from descriptor 3, writes answers to 4
]
BECOME = "import os, sys; [os.dup2(int(sys.argv[1]), fd) for fd in (3, 4)]; os.execv(sys.argv[2], sys.argv[2:])"


class Browser:
    """A Chromium with a profile of its own; a context manager."""

    def __init__(self, folder: Path) -> None:
        """Prepare a browser that keeps its profile and its log in `folder`."""
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._mine: socket.socket | None = None
        self._received = b""
        self._sent = 0

    def __enter__(self) -> Self:
        self._mine, other = socket.socketpair()
        self._mine.settimeout(ANSWER_TIMEOUT)
        program = [str(shutil.which("chromium")), *FLAGS, f"--user-data-dir={self._folder / 'profile'}"]
        command = [sys.executable, "-I", "-S", "-c", BECOME, str(other.fileno()), *program, "about:blank"]
        with other:
            log, descriptors = self._folder / "chromium.log", (other.fileno(),)
            self._process = start_process(command, log, env=dict(os.environ), pass_fds=descriptors)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._mine is not None
        self._mine.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def open(self, url: str, *, width: int = 1024, height: int = 768) -> "Page":
        """Open a page in a tab of its own, and return when it has loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        page.go(url)
        return page

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Send a command of the protocol and return its result; events that come before it are dropped."""
        assert self._mine is not None
        self._sent += 1
        command = {"id": self._sent, "method": method, "params": parameters}
        command |= {"sessionId": session} if session else {}
        self._mine.sendall(json.dumps(command).encode() + b"\0")
        while (message := self._receive()).get("id") != self._sent:
            pass
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        result: dict[str, Any] = message["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        assert self._mine is not None
        while b"\0" not in self._received:
            received = self._mine.recv(1 << 16)
            if not received:
                raise RuntimeError("the browser ended:\n" + (self._folder / "chromium.log").read_text())
            self._received += received
        message, _, self._received = self._received.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded


class Page:
    """One tab; a context manager that closes it."""

    def __init__(self, browser: Browser, target: str, session: str) -> None:
        """Be the tab `target`, commanded through `session`."""
        self._browser = browser
        self._target = target
        self._session = session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command of the protocol to this tab and return its result."""
        return self._browser.call(method, self._session, **parameters)

    def go(self, url: str) -> None:
        """Load `url` and return when it has loaded."""
        failure = self.call("Page.navigate", url=url).get("errorText")
        if failure:
            raise RuntimeError(f"{url}: {failure}")
        self.evaluate("new Promise(go => document.readyState === 'complete' ? go() : addEventListener('load', go))")

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, that of a promise when it is settled."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Write what the tab shows as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
