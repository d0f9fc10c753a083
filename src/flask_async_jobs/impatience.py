"""Opening a connection, no longer than a caller can wait, with an engine that the application made."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Dialect, Engine, event

from flask_async_jobs.watchdog import Watchdog

CONNECT_TIMEOUT: Final = 3
"""Seconds to connect to one address, unless the application says otherwise; a driver's own limit is minutes."""

PING_LIMIT: Final = 3.0

_drivers: Final = ("psycopg", "psycopg2")


class _Asking(threading.local):
    """Whether this thread asks for a connection on behalf of the library, and who watches over its ping."""

    watchdog: Watchdog | None = None


_asking = _Asking()


def prepare(engine: Engine) -> None:
    """Let `impatient` bound the connections of an engine; once is enough. Connects to nothing."""
    if engine.dialect.driver not in _drivers or event.contains(engine, "do_connect", _limit_connect):
        return
    event.listen(engine, "do_connect", _limit_connect)
    engine.dialect.do_ping = _watched(engine.dialect.do_ping)  # type: ignore[method-assign, assignment]


@contextmanager
def impatient(watchdog: Watchdog) -> Iterator[None]:
    """Bound what this thread does to get a connection; what the application itself asks for is not concerned.

    A new connection is given up after `CONNECT_TIMEOUT` for each address of the host, and the ping of
    `pool_pre_ping` after `PING_LIMIT`, as its peer may have vanished without a word.
    """
    _asking.watchdog = watchdog
    try:
        yield
    finally:
        _asking.watchdog = None


def _limit_connect(dialect: Dialect, record: Any, arguments: Any, parameters: dict[str, Any]) -> None:
    if _asking.watchdog is not None and "PGCONNECT_TIMEOUT" not in os.environ:
        parameters.setdefault("connect_timeout", CONNECT_TIMEOUT)


def _watched(ping: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def watched(connection: Any) -> bool:
        if _asking.watchdog is None:
            return ping(connection)
        with _asking.watchdog.watch(connection, PING_LIMIT):
            return ping(connection)

    return watched
