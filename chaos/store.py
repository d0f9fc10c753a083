"""The database of the application under load: what is noted beside the library, and how it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg
from psycopg.rows import class_row
from sqlalchemy import NullPool, create_engine, make_url

from chaos.history import Accepted, Change, History, Job, Run
from flask_async_jobs.models import Base

_TABLES: Final = """
    CREATE TABLE runs (
        job_id uuid, attempt integer, token uuid, pid integer, started_at timestamptz, ended_at timestamptz
    );
    CREATE INDEX ON runs (token);
    CREATE TABLE audit (
        n bigserial PRIMARY KEY, job_id uuid, old text, new text, old_token uuid, new_token uuid, attempt integer,
        lease timestamptz, recovered boolean, at timestamptz
    );
    CREATE FUNCTION note_insert() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO audit (job_id, new, new_token, attempt, recovered, at)
        VALUES (NEW.id, NEW.status, NEW.execution_token, NEW.attempt, false, clock_timestamp());
        RETURN NEW;
    END $$;
    -- Recovery leaves available_at as it is, which a retry does not; and its failures have a title of their own.
    CREATE FUNCTION note_update() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO audit (job_id, old, new, old_token, new_token, attempt, lease, recovered, at)
        VALUES (
            NEW.id, OLD.status, NEW.status, OLD.execution_token, NEW.execution_token, NEW.attempt,
            OLD.lease_expires_at,
            OLD.status = 'PROCESSING' AND (
                (NEW.status = 'PENDING' AND NEW.available_at = OLD.available_at)
                OR (NEW.status = 'FAILED' AND NEW.error_title = 'Processing timeout')
            ),
            clock_timestamp()
        );
        RETURN NEW;
    END $$;
    CREATE TRIGGER note_insert AFTER INSERT ON async_jobs FOR EACH ROW EXECUTE FUNCTION note_insert();
    CREATE TRIGGER note_update AFTER UPDATE ON async_jobs FOR EACH ROW
        WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.execution_token IS DISTINCT FROM NEW.execution_token)
        EXECUTE FUNCTION note_update();
"""
_JOBS: Final = "SELECT id::text AS job_id, idempotency_key AS key, status, attempt, error_code FROM async_jobs"
_RUNS: Final = """
    SELECT job_id::text, attempt, token::text,
        extract(epoch FROM started_at)::float8 AS started_at, extract(epoch FROM ended_at)::float8 AS ended_at
    FROM runs
"""
# The sequence follows the order of the changes of one job: its row is locked from before one until its commit.
_CHANGES: Final = """
    SELECT job_id::text, old, new, old_token::text, new_token::text, attempt,
        extract(epoch FROM lease)::float8 AS lease, recovered, extract(epoch FROM at)::float8 AS at
    FROM audit ORDER BY n
"""
_ACTIVE: Final = "SELECT count(*) FROM async_jobs WHERE status IN ('PENDING', 'PROCESSING')"
_COMPLETED: Final = "SELECT count(*) FROM async_jobs WHERE status = 'COMPLETED'"


class Store:
    """The database at `url`, empty when this is made; it then has the library's tables and those of the notes."""

    def __init__(self, url: str) -> None:
        engine = create_engine(url, poolclass=NullPool)
        Base.metadata.create_all(engine)
        self.url = url
        self.dsn = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        with self._connected() as connection:
            connection.execute(_TABLES)

    def active(self) -> int:
        """Return how many jobs have not ended."""
        return self._count(_ACTIVE)

    def completed(self) -> int:
        """Return how many jobs have completed."""
        return self._count(_COMPLETED)

    def history(self, accepted: Sequence[Accepted], max_attempts: int) -> History:
        """Read everything that was noted; nothing may run any more."""
        with self._connected() as connection:
            return History(
                accepted,
                connection.cursor(row_factory=class_row(Job)).execute(_JOBS).fetchall(),
                connection.cursor(row_factory=class_row(Run)).execute(_RUNS).fetchall(),
                connection.cursor(row_factory=class_row(Change)).execute(_CHANGES).fetchall(),
                max_attempts,
            )

    def _count(self, query: str) -> int:
        with self._connected() as connection:
            row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])

    def _connected(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.dsn, autocommit=True, connect_timeout=10)
