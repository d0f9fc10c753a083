"""What the database of a consumer application saw: runs, rows, and every change of a state."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import NullPool, Row, create_engine, text

TERMINAL = {"COMPLETED", "FAILED", "CANCELLED"}
NUMBER = {"sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT", "postgresql": "BIGSERIAL PRIMARY KEY"}
TABLES = [
    "CREATE TABLE runs (job_id TEXT, attempt INTEGER, pid INTEGER, thread TEXT, at FLOAT)",
    "CREATE TABLE notes (id {number}, text TEXT)",
    "CREATE TABLE audit (n {number}, job_id TEXT, old TEXT, new TEXT)",
]
AUDIT = {
    "sqlite": [
        "CREATE TRIGGER audit AFTER UPDATE ON async_jobs WHEN OLD.status IS NOT NEW.status"
        " BEGIN INSERT INTO audit (job_id, old, new) VALUES (NEW.id, OLD.status, NEW.status); END"
    ],
    "postgresql": [
        "CREATE FUNCTION note_status() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " INSERT INTO audit (job_id, old, new) VALUES (NEW.id, OLD.status, NEW.status); RETURN NEW; END $$",
        "CREATE TRIGGER audit AFTER UPDATE ON async_jobs FOR EACH ROW"
        " WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION note_status()",
    ],
}
ORPHAN = "INSERT INTO async_jobs (id, type, status, payload, created_at, last_updated_at)"
INSTANTS = ("created_at", "started_at", "last_updated_at", "completed_at", "available_at")


class Store:
    """The database of a consumer application, seen from beside the library.

    Made on a migrated database without rows; adds the tables of the consumer and the audit of states.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = create_engine(url, poolclass=NullPool)
        self._dialect = self._engine.dialect.name
        for statement in TABLES:
            self._write(statement.format(number=NUMBER[self._dialect]))
        for statement in AUDIT[self._dialect]:
            self._write(statement)

    def close(self) -> None:
        """Check that no row ever left a terminal state, and let go of the database."""
        left = [change for change in self.changes() if change.old in TERMINAL]
        self._engine.dispose()
        assert not left, f"jobs left a terminal state: {left}"

    # What happened

    def runs(self) -> Sequence[Row[Any]]:
        """Every execution of a handler, the oldest first."""
        return self._read("SELECT job_id, attempt, pid, thread, at FROM runs ORDER BY at")

    def changes(self) -> Sequence[Row[Any]]:
        """Every change of a state, the oldest first."""
        return self._read("SELECT job_id, old, new FROM audit ORDER BY n")

    def job(self, job_id: str) -> Row[Any]:
        """The row of a job."""
        [row] = self._read("SELECT * FROM async_jobs WHERE id = :id", id=job_id)
        return row

    def path(self, job_id: str) -> list[str]:
        """The states that a job went through, the first one it had left included."""
        changes = [change for change in self.changes() if change.job_id == job_id]
        return [changes[0].old, *(change.new for change in changes)] if changes else []

    def backends(self) -> set[int]:
        """The server processes of all connections to this database (PostgreSQL)."""
        rows = self._read("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
        return {row.pid for row in rows}

    def connections(self) -> int:
        """How many connections to this database there are, this one included; 0 on SQLite, where nobody knows."""
        return len(self.backends()) if self._dialect == "postgresql" else 0

    def states(self) -> Counter[str]:
        """How many jobs there are in each state."""
        return Counter(row.status for row in self._read("SELECT status FROM async_jobs"))

    def attempts(self) -> set[int]:
        """The numbers of attempts that occur."""
        return {row.attempt for row in self._read("SELECT attempt FROM async_jobs")}

    def notes(self) -> list[str]:
        """What handlers wrote through `db.session`."""
        return [row.text for row in self._read("SELECT text FROM notes ORDER BY id")]

    # Writing by SQL

    def add_orphan(self, type: str, payload: Any = None) -> str:
        """Insert a PENDING job that was accepted ten minutes ago and forgotten; return its id."""
        job_id, then = str(uuid4()), self._instant(timedelta(minutes=10))
        body = None if payload is None else json.dumps(payload)
        statement = f"{ORPHAN} VALUES (:id, :type, 'PENDING', :payload, :then, :then)"
        self._write(statement, id=job_id, type=type, payload=body, then=then)
        return job_id

    def add_abandoned(self, type: str, payload: Any = None, **columns: Any) -> str:
        """Insert a PROCESSING job whose process has been dead since yesterday; return its id.

        `columns` are added to the row, or replace what it has; a duration is so long ago.
        """
        yesterday = timedelta(days=1)
        row = {"id": str(uuid4()), "type": type, "status": "PROCESSING", "execution_token": str(uuid4())}
        row |= dict.fromkeys(("created_at", "started_at", "last_updated_at", "lease_expires_at"), yesterday)
        row |= {"attempt": 1, "payload": None if payload is None else json.dumps(payload), **columns}
        values = {k: self._instant(v) if isinstance(v, timedelta) else v for k, v in row.items()}
        names = ", ".join(values)
        self._write(f"INSERT INTO async_jobs ({names}) VALUES (:{names.replace(', ', ', :')})", **values)
        return str(row["id"])

    def cancel(self, job_id: str) -> None:
        """End a job as somebody at a console would."""
        changes = "status = 'CANCELLED', completed_at = :now, last_updated_at = :now, revision = revision + 1"
        self._write(f"UPDATE async_jobs SET {changes} WHERE id = :id", now=self._instant(timedelta(0)), id=job_id)

    @contextmanager
    def locked(self, job_id: str) -> Iterator[None]:
        """Hold the lock of a job's row (PostgreSQL)."""
        with self._engine.begin() as connection:
            connection.execute(text("SELECT 1 FROM async_jobs WHERE id = :id FOR UPDATE"), {"id": job_id})
            yield

    def add_note(self, words: str) -> None:
        """Commit a note."""
        self._write("INSERT INTO notes (text) VALUES (:words)", words=words)

    def age(self, by: timedelta) -> None:
        """Move every instant of every job into the past."""
        if self._dialect == "sqlite":
            shift = f"strftime('%Y-%m-%d %H:%M:%f', {{0}}, '-{by.total_seconds()} seconds')"
        else:
            shift = f"{{0}} - interval '{by.total_seconds()} seconds'"
        moved = ", ".join(f"{name} = {shift.format(name)}" for name in INSTANTS)
        self._write(f"UPDATE async_jobs SET {moved}")

    def _instant(self, ago: timedelta) -> Any:
        then = datetime.now(UTC) - ago
        return then.strftime("%Y-%m-%d %H:%M:%S.%f") if self._dialect == "sqlite" else then

    def _read(self, statement: str, **parameters: Any) -> Sequence[Row[Any]]:
        with self._engine.connect() as connection:
            return connection.execute(text(statement), parameters).all()

    def _write(self, statement: str, **parameters: Any) -> None:
        with self._engine.begin() as connection:
            connection.execute(text(statement), parameters)
