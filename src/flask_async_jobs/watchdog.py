"""Ending statements that a dead network would keep waiting for ever."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

STATEMENT_LIMIT: Final = 6.0
"""Seconds: every statement of the library is short, and a request is answered within ten."""

_INTERVAL: Final = 0.5

_log = logging.getLogger("flask_async_jobs")


class Watchdog:
    """Breaks a connection whose statement takes longer than `limit` seconds.

    A peer that vanished without a word answers nothing, and a driver waits for it as long as the kernel does.
    Shutting the socket makes the driver raise, and the pool drop the connection. One daemon thread, which starts
    with a statement and ends when none has run for a moment.
    """

    def __init__(self, limit: float = STATEMENT_LIMIT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._running: dict[int, tuple[float, float, Any]] = {}
        self._looks = False

    @contextmanager
    def watch(self, driver: Any, limit: float | None = None) -> Iterator[None]:
        """Watch over the statements inside the block, on a connection of the driver.

        Args:
            driver: The connection.
            limit: Seconds, if not those of the watchdog.
        """
        key = id(driver)
        limit = self._limit if limit is None else limit
        with self._lock:
            self._running[key] = (time.monotonic() + limit, limit, driver)
            if not self._looks:
                self._looks = True
                threading.Thread(target=self._look, name="async-jobs-watchdog", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                del self._running[key]

    def _look(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(_INTERVAL)
            with self._lock:
                if not self._running:
                    self._looks = False
                    return
                now = time.monotonic()
                for key, (deadline, limit, driver) in self._running.items():
                    if deadline <= now:
                        self._running[key] = (math.inf, limit, driver)
                        self._break(driver, limit)

    @staticmethod
    def _break(driver: Any, limit: float) -> None:
        try:
            with socket.socket(fileno=os.dup(driver.fileno())) as end:
                end.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # closed already
        except Exception:  # a driver of another kind; its statement goes on
            _log.exception("a statement takes too long, and its connection cannot be broken")
            return
        _log.error("a statement took longer than %s s; its connection is broken", limit)
