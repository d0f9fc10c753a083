"""Waiting for a connection of the application's pool, no longer than a caller can."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from sqlalchemy import Engine, QueuePool, event

from flask_async_jobs.errors import StorageUnavailable

LONGEST_WAIT: Final = 3.0
"""Seconds: a request is answered within ten, whatever the pool's own timeout is."""

_RECHECK: Final = 0.05


class Gate:
    """Lets a caller through when the pool has a connection to give.

    An application's pool may wait half a minute by itself, and handlers may hold all of its connections. The pool
    tells when one comes back.
    """

    def __init__(self, engine: Engine) -> None:
        self._pool = engine.pool
        self._returned = threading.Condition()
        self.capacity = _capacity(engine)
        if self.capacity is not None:
            event.listen(self._pool, "checkin", self._note_return)

    def wait(self, limit: float = LONGEST_WAIT) -> None:
        """Wait at most `limit` seconds until the pool has a connection.

        Raises:
            StorageUnavailable: It has none in that time.
        """
        if self.capacity is None or self._has_room():
            return
        deadline = time.monotonic() + limit
        with self._returned:
            while not self._has_room():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise StorageUnavailable(f"all {self.capacity} connections of the pool are in use")
                # The pool tells a moment before the connection is back.
                self._returned.wait(min(left, _RECHECK))

    def _has_room(self) -> bool:
        pool = self._pool
        return not isinstance(pool, QueuePool) or self.capacity is None or pool.checkedout() < self.capacity

    def _note_return(self, *connection: Any) -> None:
        with self._returned:
            self._returned.notify_all()


def _capacity(engine: Engine) -> int | None:
    """Return how many connections the pool gives at most, or None for any number."""
    pool = engine.pool
    if not isinstance(pool, QueuePool):
        return None
    overflow: int = pool._max_overflow
    return None if overflow < 0 or pool.size() == 0 else pool.size() + overflow
