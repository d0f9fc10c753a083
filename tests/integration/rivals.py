"""Two writers at one row: the first has written and not committed when the second begins."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, text

from flask_async_jobs import JobRepository
from tests.waiting import wait_until

Write = Callable[[JobRepository], Any]
BLOCKED = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """Give a connection in a transaction that may write, to be committed or rolled back by the block."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        yield connection


def is_blocked(engine: Engine) -> bool:
    """Return whether somebody waits for a row of another; on SQLite that is nobody's to know, and assumed."""
    if engine.dialect.name == "sqlite":
        return True
    with engine.connect() as connection:
        return bool(connection.execute(BLOCKED).scalar_one())


@contextmanager
def rival(engine: Engine, second: Write) -> Iterator[Future[Any]]:
    """Run `second` on an engine of its own, and go on when it has its answer or has to wait for one.

    PostgreSQL tells who waits. On SQLite, where a writer has to wait for any other, it is enough that the statement
    was sent. A rival that is kept waiting for 20 seconds fails.
    """
    patience = {} if engine.dialect.name == "sqlite" else {"options": "-c lock_timeout=20s"}
    own = create_engine(engine.url, connect_args=patience)
    sent = threading.Event()
    event.listen(own, "before_cursor_execute", lambda *statement: sent.set())

    try:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(second, JobRepository(own))
            wait_until(lambda: future.done() or (sent.is_set() and is_blocked(engine)))
            yield future
    finally:
        own.dispose()


def at_once(number: int, act: Callable[[int], Any]) -> list[Any]:
    """Let as many threads call `act` at the same moment, and return what each gave."""
    barrier = threading.Barrier(number)

    def start(index: int) -> Any:
        barrier.wait(10)
        return act(index)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(start, range(number)))
