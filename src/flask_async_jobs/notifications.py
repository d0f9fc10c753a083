"""Telling other processes that something has changed, and hearing it from them, by LISTEN and NOTIFY."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Engine

from flask_async_jobs.impatience import impatient
from flask_async_jobs.watchdog import Watchdog

CHANGED: Final = "changed"
DUE: Final = "due"
HELLO: Final = "hello"
HERE: Final = "here"
GAP: Final = 0.02
"""Seconds between two notifications of a process, however many jobs change in that time."""

AGAIN: Final = 1.0
"""Seconds until a lost connection is made anew."""

_log = logging.getLogger("flask_async_jobs")


class Notifier:
    """One connection on which a process listens, and on which it tells what its own statements changed.

    A notification only shortens a wait: everything is polled as well, and what is lost here costs one poll
    interval. It says that some job has changed, or is due, and not which. A process that begins to listen says so,
    and is answered; one that has heard of no other tells nothing. The connection is made like every other of the
    engine and then taken out of its pool. Behind a pooler in transaction mode nobody can listen, so nothing
    is told or heard where connections prepare no statements (`prepare_threshold=None`), as they must not there.

    Args:
        engine: PostgreSQL.
        schema: Only processes with the same schema in the same database hear each other.
        heard: Called with `CHANGED` or `DUE`, what another process told; must return at once.

    Attributes:
        has_peers: Whether another process was heard so far.
    """

    def __init__(self, engine: Engine, schema: str | None, heard: Callable[[str], None]) -> None:
        self._engine = engine
        self._channel = f"async_jobs {schema or ''}".strip()
        self._heard = heard
        self._name = uuid4().hex
        self._lock = threading.Lock()
        self._untold: set[str] = set()
        self.has_peers = False
        self._sent_at = 0.0
        self._stopped = threading.Event()
        self._watchdog = Watchdog()
        self._waker: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="async-jobs-notifications", daemon=True)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def stop(self) -> None:
        """Hang up. Waits for nothing."""
        self._stopped.set()
        self._wake()

    def join(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for a statement that is under way."""
        if self._thread.is_alive():
            self._thread.join(timeout)

    def tell(self, what: str) -> None:
        """Tell the other processes, if there are any, at the latest after `GAP`. Returns at once."""
        if self.has_peers and what not in self._untold:
            self._say(what)

    def _say(self, what: str) -> None:
        with self._lock:
            self._untold.add(what)
        self._wake()

    def _wake(self) -> None:
        if self._waker is not None:
            with suppress(OSError):  # it is full, so that the thread is being woken, or closed
                self._waker.send(b".")

    def _run(self) -> None:
        self._waker, woken = socket.socketpair()
        self._waker.setblocking(False)
        with self._waker, woken:
            while not self._stopped.is_set():
                try:
                    self._converse(woken)
                except Exception as error:
                    _log.debug("no notifications for the moment: %s", error)
                    self._stopped.wait(AGAIN)

    def _converse(self, woken: socket.socket) -> None:
        with self._own_connection() as connection, selectors.DefaultSelector() as selector:
            if connection.prepare_threshold is None:
                self._stopped.set()
                return
            connection.add_notify_handler(lambda notification: self._hear(notification.payload))
            with self._watchdog.watch(connection):
                connection.execute("SET synchronous_commit TO off")  # what a crash loses here, it loses anyway
                connection.execute(f'LISTEN "{self._channel}"')
            self._say(HELLO)
            self._heard(CHANGED)  # what was told before this moment was not heard
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(woken, selectors.EVENT_READ)
            while not self._stopped.is_set():
                ready = {key.fileobj for key, _ in selector.select(self._pause())}
                if woken in ready:
                    woken.recv(4096)
                if connection.fileno() in ready:
                    self._receive(connection.pgconn)
                if self._pause() == 0:
                    self._send(connection)

    def _pause(self) -> float | None:
        """Return how many seconds there are until something is to be sent; None: nothing is."""
        return max(0.0, self._sent_at + GAP - time.monotonic()) if self._untold else None

    def _send(self, connection: Any) -> None:
        with self._lock:
            what, self._untold = self._untold, set()
        with self._watchdog.watch(connection):
            for each in sorted(what):
                connection.execute("SELECT pg_notify(%s, %s)", (self._channel, f"{each} {self._name}"))
        self._sent_at = time.monotonic()

    def _receive(self, pgconn: Any) -> None:
        pgconn.consume_input()
        while notification := pgconn.notifies():
            self._hear(notification.extra.decode())

    def _hear(self, message: str) -> None:
        what, _, sender = message.partition(" ")
        if sender == self._name:
            return
        self.has_peers = True
        if what == HELLO:
            self._say(HERE)
        elif what != HERE:
            self._heard(what)

    @contextmanager
    def _own_connection(self) -> Iterator[Any]:
        """Give a connection of the driver that the pool does not count, in autocommit."""
        with impatient(self._watchdog):
            pooled = self._engine.raw_connection()
        connection: Any = pooled.driver_connection
        pooled.detach()
        try:
            connection.rollback()
            connection.autocommit = True
            yield connection
        finally:
            connection.close()


def can_notify(engine: Engine) -> bool:
    """Return whether processes on this engine can notify each other."""
    return engine.dialect.name == "postgresql" and engine.dialect.driver == "psycopg"
