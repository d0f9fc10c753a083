"""The caller's own transaction, given as a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Engine, event, table, update
from sqlalchemy.exc import DBAPIError, UnboundExecutionError
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from flask_async_jobs.errors import StorageUnavailable

_WAITING: Final = "flask_async_jobs_waiting"
_WRITING: Final[dict[str, Any]] = {"clause": update(table("async_jobs"))}
"""What a session is asked with that reads from a replica: the transaction of its writes is the one to share."""

AnySession = Session | scoped_session[Any]


def connection_of(session: AnySession, engine: Engine) -> Connection:
    """Return the connection of the session's transaction on `engine`; begins the transaction if there is none.

    Raises:
        ValueError: The session is bound to another engine, so its transaction is another database's.
    """
    own = plain(session)
    try:
        bind = own.get_bind(**_WRITING)
    except UnboundExecutionError:
        raise ValueError("session= is bound to no engine, so it has no transaction to share") from None
    if bind.engine.pool is engine.pool:
        return own.connection(bind_arguments=_WRITING)
    raise ValueError("session= is bound to another engine than the library's, so they share no transaction")


@contextmanager
def outage_told() -> Iterator[None]:
    """Raise `StorageUnavailable` for a statement or commit inside that lost its connection.

    Whether a commit took effect is unknown then.
    """
    try:
        yield
    except DBAPIError as error:
        if error.connection_invalidated:
            raise StorageUnavailable("the database went away in the middle of a transaction") from error
        raise


def when_ended(session: AnySession, then: Callable[[], None]) -> None:
    """Call `then` when the session's outermost transaction has ended, committed or not; once."""
    own = plain(session)
    waiting: list[Callable[[], None]] = own.info.setdefault(_WAITING, [])
    if not event.contains(own, "after_transaction_end", _call_waiting):
        event.listen(own, "after_transaction_end", _call_waiting)
    waiting.append(then)


def _call_waiting(session: Session, transaction: SessionTransaction) -> None:
    # The listener stays: the session goes through its listeners at this moment, and may be used again.
    if transaction.parent is None:
        for then in session.info.pop(_WAITING, ()):
            then()


def plain(session: AnySession) -> Session:
    """Return the session that a `scoped_session` stands for at the moment, or the session itself."""
    return session() if isinstance(session, scoped_session) else session
