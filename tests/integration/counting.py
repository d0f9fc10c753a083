"""Counting statements and commits, as the database driver sees them."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, event


class Statements(list[str]):
    """The statements that were sent, in order."""

    @property
    def writes(self) -> list[str]:
        """Those that write."""
        return [s for s in self if not s.lstrip().upper().startswith(("SELECT", "PRAGMA"))]

    @property
    def reads(self) -> list[str]:
        """Those that only read."""
        return [s for s in self if s.lstrip().upper().startswith("SELECT")]


@contextmanager
def counted(engine: Engine) -> Iterator[Statements]:
    """Note every statement on `engine`, explicit transaction control included."""
    seen = Statements()

    def note(conn, cursor, statement, parameters, context, executemany):
        seen.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", note)
