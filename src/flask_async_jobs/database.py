"""One statement at a time on the application's database: the connection, the clock and the failures of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Executable,
    Function,
    Interval,
    Row,
    Select,
    String,
    bindparam,
    exc,
    func,
    select,
    type_coerce,
)

from flask_async_jobs.column_types import Identifier, Instant
from flask_async_jobs.connections import LONGEST_WAIT, Gate
from flask_async_jobs.errors import ConfigurationError, StorageUnavailable
from flask_async_jobs.impatience import impatient, prepare
from flask_async_jobs.outages import UNAVAILABLE, Outages
from flask_async_jobs.watchdog import Watchdog

Clock = Callable[[], datetime]
"""A callable that gives the current instant, aware."""

STALE_LIMIT: Final = 1.0


class Database:
    """Runs single statements, each in a transaction of its own that is committed when `run` returns.

    A statement that is a whole transition needs no `BEGIN` and `COMMIT` of its own, so an autocommit connection
    is used. Instants come from `now` and `after`: the server's clock on PostgreSQL, this process's on SQLite,
    which *is* the database there, or the injected one on both.
    """

    def __init__(self, engine: Engine, clock: Clock | None = None) -> None:
        if engine.dialect.name not in ("postgresql", "sqlite"):
            raise ConfigurationError(
                f"the engine is for {engine.dialect.name}: use PostgreSQL ('postgresql+psycopg://…') or SQLite"
            )
        self.engine = engine
        self.is_sqlite = engine.dialect.name == "sqlite"
        self._autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
        # The lock is taken before the count is read, which has to see what was committed until then.
        self._committed = engine if self.is_sqlite else engine.execution_options(isolation_level="READ COMMITTED")
        self._clock = clock or (_system_clock if self.is_sqlite else None)
        self._outages = Outages()
        self.gate = Gate(engine)
        self._watchdog = Watchdog()
        prepare(engine)

    @property
    def is_memory(self) -> bool:
        """Whether the database is in memory, so that another connection would see another one."""
        return self.is_sqlite and self.engine.url.database in (None, "", ":memory:")

    @property
    def now(self) -> ColumnElement[datetime]:
        """The current instant as an SQL expression."""
        return (
            func.statement_timestamp(type_=Instant()) if self._clock is None else bindparam("now_", type_=Instant())
        )

    def after(self, name: str) -> ColumnElement[datetime]:
        """Return the instant `now` plus the duration that `run` is given as `durations[name]`."""
        if self._clock is None:
            return func.statement_timestamp(type_=Instant()) + bindparam(name, type_=Interval())
        return bindparam(name, type_=Instant())

    def later(self, a: ColumnElement[Any], b: ColumnElement[Any]) -> Function[Any]:
        """Return the greater of two SQL expressions."""
        return (func.max if self.is_sqlite else func.greatest)(a, b, type_=Instant())

    def one_of(self, column: ColumnElement[UUID], name: str) -> ColumnElement[bool]:
        """Return the condition that `column` is one of the identifiers that `run` is given as `spelled(…)`."""
        kind = String() if self.is_sqlite else Identifier()
        return type_coerce(column, kind).in_(bindparam(name, type_=kind, expanding=True))

    def spelled(self, *identifiers: UUID) -> list[Any]:
        """Return the values for `one_of`: SQLite has no UUID type, and a console may write one without dashes."""
        if not self.is_sqlite:
            return list(identifiers)
        return [text for identifier in identifiers for text in (str(identifier), identifier.hex)]

    def run(
        self,
        statement: Executable,
        parameters: Mapping[str, Any] | None = None,
        durations: Mapping[str, timedelta] | None = None,
        wait: float = LONGEST_WAIT,
    ) -> Sequence[Row[Any]]:
        """Execute `statement`, commit, and return its rows.

        Args:
            statement: One statement.
            parameters: What it is bound to.
            durations: The durations for `after`.
            wait: How many seconds to wait for a connection of the pool.

        Raises:
            StorageUnavailable: The database did not answer, or has no tables; whether a write took effect is
                unknown. It is logged once, until the database answers again.
        """
        self.gate.wait(wait)
        bound = self._bound(parameters, durations)
        begun = time.monotonic()
        try:
            try:
                rows = self._execute(statement, bound)
            except exc.DBAPIError as error:
                # A pool may hold connections from before a restart; a read that met one at once is asked again.
                if not (error.connection_invalidated and isinstance(statement, Select)):
                    raise
                if time.monotonic() - begun > STALE_LIMIT:
                    raise
                rows = self._execute(statement, bound)
        except UNAVAILABLE as error:
            self._outages.note(error)
            raise StorageUnavailable("the database cannot be asked at the moment") from error
        self._outages.note_answer()
        return rows

    def _execute(self, statement: Executable, bound: Mapping[str, Any]) -> Sequence[Row[Any]]:
        with self._connected(self._autocommit) as connection:
            try:
                return connection.execute(statement, bound).all()
            except exc.NotSupportedError:
                connection.invalidate()
                raise

    @contextmanager
    def _connected(self, engine: Engine) -> Iterator[Connection]:
        """Give a connection and commit at the end; neither opening it nor a statement takes for ever."""
        if self.is_sqlite:
            with engine.begin() as connection:
                yield connection
            return
        with impatient(self._watchdog):
            connection = engine.connect()
        with connection, self._watchdog.watch(connection.connection.driver_connection), connection.begin():
            yield connection

    def run_locked(
        self, locks: Sequence[int], statement: Executable, parameters: Mapping[str, Any]
    ) -> Sequence[Row[Any]]:
        """Execute `statement` while nobody else holds one of these locks, on any host; see `together`.

        Raises:
            StorageUnavailable: As for `run`.
        """
        if self.is_sqlite:
            return self.run(statement, parameters)
        with self.together(locks) as transaction:
            return transaction.run(statement, parameters)

    @contextmanager
    def together(self, locks: Sequence[int] = ()) -> Iterator[Database]:
        """Give a database whose statements are one transaction, committed at the end of the block.

        Args:
            locks: On PostgreSQL advisory locks of the transaction, taken first and in the order given. SQLite needs
                none: from its first writing statement on the transaction is alone.

        Raises:
            StorageUnavailable: As for `run`; whether the transaction took effect is unknown.
        """
        self.gate.wait()
        try:
            with self._connected(self._committed) as connection:
                transaction = _Within(self, connection, self._clock)
                transaction.lock(locks)
                yield transaction
        except UNAVAILABLE as error:
            self._outages.note(error)
            raise StorageUnavailable("the database cannot be asked at the moment") from error

    def within(self, connection: Connection) -> Database:
        """Return a database that runs its statements in the transaction of `connection`, and commits nothing.

        Errors are SQLAlchemy's own there: they concern the caller's transaction, which has to decide.
        """
        return _Within(self, connection, self._clock)

    def _bound(
        self, parameters: Mapping[str, Any] | None, durations: Mapping[str, timedelta] | None
    ) -> dict[str, Any]:
        bound: dict[str, Any] = dict(parameters or {})
        if self._clock is None:
            bound.update(durations or {})
        else:
            bound["now_"] = now = self._clock()
            bound.update((name, now + duration) for name, duration in (durations or {}).items())
        return bound


class _Within(Database):
    def __init__(self, database: Database, connection: Connection, clock: Clock | None) -> None:
        self.engine = database.engine
        self.is_sqlite = database.is_sqlite
        self._clock = clock
        self._connection = connection

    def run(
        self,
        statement: Executable,
        parameters: Mapping[str, Any] | None = None,
        durations: Mapping[str, timedelta] | None = None,
        wait: float = LONGEST_WAIT,
    ) -> Sequence[Row[Any]]:
        result = self._connection.execute(statement, self._bound(parameters, durations))
        return result.all() if result.returns_rows else ()

    def run_locked(
        self, locks: Sequence[int], statement: Executable, parameters: Mapping[str, Any]
    ) -> Sequence[Row[Any]]:
        with self.together(locks):
            return self.run(statement, parameters)

    @contextmanager
    def together(self, locks: Sequence[int] = ()) -> Iterator[Database]:
        if locks and not self.is_sqlite:
            level = self._connection.get_isolation_level()
            if level not in ("READ COMMITTED", "READ UNCOMMITTED", "AUTOCOMMIT"):
                raise ValueError(f"a cap cannot be exact in a {level} transaction, which sees old counts")
        self.lock(locks)
        yield self

    def lock(self, locks: Sequence[int]) -> None:
        """Take the locks until the transaction ends."""
        for lock in () if self.is_sqlite else locks:
            self._connection.execute(select(func.pg_advisory_xact_lock(lock)))


def _system_clock() -> datetime:
    return datetime.now(UTC)
