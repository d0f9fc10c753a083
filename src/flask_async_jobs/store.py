"""What every part of the job store rests on: the statements, and what is done with the rows that come back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import copy
from datetime import timedelta
from typing import Any, Self
from uuid import UUID

from sqlalchemy import Connection, Engine, Executable, Row

from flask_async_jobs.database import Clock, Database
from flask_async_jobs.models import jobs_table, log_table
from flask_async_jobs.records import Tally
from flask_async_jobs.statements import Statements
from flask_async_jobs.states import AnyOwner


class Store:
    """The database of a job store and its statements; see `JobRepository`."""

    def __init__(self, engine: Engine, *, schema: str | None = None, clock: Clock | None = None) -> None:
        self.database = Database(engine, clock)
        self.statements = Statements(self.database, jobs_table(schema), log_table(schema))
        self._capped: dict[tuple[str, ...], Any] = {}
        self.schema = schema
        self.refused = Tally()
        self.changed: Callable[[], None] = _nobody_listens
        self.ended: Callable[[Collection[UUID]], None] = _nobody_listens

    def within(self, connection: Connection) -> Self:
        """Return this repository in the transaction of `connection`.

        It commits nothing, and the errors of its methods are SQLAlchemy's own. `changed` and `ended` are left to
        the caller, who knows when the transaction has ended.
        """
        return self.on(self.database.within(connection))

    def on(self, transaction: Database) -> Self:
        """Return this repository in a transaction; see `within`."""
        bound = copy(self)
        bound.changed = bound.ended = _nobody_listens
        bound.database = transaction
        return bound

    def _fenced(
        self, statement: Executable, parameters: dict[str, Any], durations: dict[str, timedelta] | None = None
    ) -> Sequence[Row[Any]]:
        rows = self.database.run(statement, parameters, durations)
        if not rows:
            self.refused.add()
        return self._told(rows)

    def _told(self, rows: Sequence[Row[Any]]) -> Sequence[Row[Any]]:
        if rows:
            self.changed()
        return rows

    def _attempt(self, job_id: UUID, execution_token: UUID | None) -> dict[str, Any]:
        parameters: dict[str, Any] = {"ids_": self.database.spelled(job_id)}
        if execution_token is not None:
            parameters["tokens_"] = self.database.spelled(execution_token)
        return parameters

    def _scoped(
        self, anyone: Executable, owned: Executable, job_id: UUID, owner: str | AnyOwner
    ) -> tuple[Executable, dict[str, Any]]:
        parameters: dict[str, Any] = {"ids_": self.database.spelled(job_id)}
        if isinstance(owner, AnyOwner):
            return anyone, parameters
        return owned, {**parameters, "owner_": owner}


def _nobody_listens(*told: object) -> None:
    """Do nothing."""
