"""Start real processes that do not outlive the test run."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

LAUNCH = Path(__file__).with_name("launch.py")


class Account(NamedTuple):
    """The user and group that a process runs as; zeros mean those of this process."""

    user: int = 0
    group: int = 0


MYSELF = Account()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago: another process may still take it first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def launched(command: Sequence[str], account: Account = MYSELF, last_words: int = 0) -> list[str]:
    """The command line that runs `command` as `account`.

    Args:
        command: An absolute path and arguments.
        account: Who runs it; anyone else needs root.
        last_words: The signal for when this process dies. The kernel sends it when the *thread* that started
            the process ends, so a process started from another thread than the main one goes without.
    """
    if threading.current_thread() is not threading.main_thread():
        last_words = 0
    numbers = map(str, (os.getpid(), int(last_words), *account))
    return [sys.executable, "-I", "-S", str(LAUNCH), *numbers, *command]


def start_process(
    command: Sequence[str],
    log: Path,
    *,
    account: Account = MYSELF,
    last_words: int = signal.SIGTERM,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start `command` in a process group of its own, its output appended to `log`; it inherits `pass_fds`."""
    with log.open("ab") as output:
        return subprocess.Popen(
            launched(command, account, last_words),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=cwd,
            start_new_session=True,
            pass_fds=pass_fds,
        )
