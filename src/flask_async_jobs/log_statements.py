"""The statements on the lines of a log: the row of the job counts them, and so gives them their numbers."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Executable,
    Integer,
    SmallInteger,
    Table,
    Text,
    bindparam,
    false,
    func,
    insert,
    select,
    true,
    update,
)
from sqlalchemy.sql.dml import ReturningUpdate
from sqlalchemy.sql.selectable import FromClause

from flask_async_jobs.database import Database
from flask_async_jobs.transitions import Transitions, limit


class LogStatements(Transitions):
    """The statements on one `async_job_log` table and the rows that its lines belong to."""

    def __init__(self, database: Database, jobs: Table, log: Table) -> None:
        super().__init__(database, jobs)
        self._log = log
        self.append = {fenced: self._appending(fenced=fenced) for fenced in (True, False)}
        self.turn = update(jobs).values(revision=jobs.c.revision).where(false())
        """Writes nothing, and makes a transaction on SQLite the only one that can write."""
        self.size = {
            fenced: select(func.coalesce(jobs.c.log_bytes, 0)).where(self.has_id, *self._owned(fenced=fenced))
            for fenced in (True, False)
        }
        self.entries = (
            select(log.c.line_number, log.c.line, log.c.written_at)
            .where(database.one_of(log.c.job_id, "ids_"), log.c.line_number > bindparam("after_"))
            .order_by(log.c.line_number)
            .limit(limit("most_"))
        )

    def _appending(self, *, fenced: bool) -> list[Executable]:
        """Return what writes lines: one statement, or two in a transaction on SQLite, which has no such one."""
        counted = self._counted(fenced=fenced)
        if self._database.is_sqlite:
            entries = func.json_each(bindparam("lines_", type_=Text())).table_valued("key", "value")
            return [counted, self._added(self._jobs, entries.c.key + 1, entries.c.value, entries, self.has_id)]
        lines = func.unnest(bindparam("lines_", type_=ARRAY(Text())))
        entries = lines.table_valued("line", with_ordinality="position").render_derived(name="entries")
        return [self._added(counted.cte("counted"), entries.c.position, entries.c.line, entries, true())]

    def _counted(self, *, fenced: bool) -> ReturningUpdate[Any]:
        """Return the transition that counts more lines, if they fit."""
        jobs = self._columns
        return (
            self._writing(
                percent_complete=func.coalesce(bindparam("percent_", type_=SmallInteger()), jobs.percent_complete),
                lease_expires_at=self._renewed(),
                log_lines=func.coalesce(jobs.log_lines, 0) + bindparam("number_", type_=Integer()),
                log_bytes=func.coalesce(jobs.log_bytes, 0) + bindparam("size_", type_=Integer()),
            )
            .where(
                self._is_one_of(self._own(fenced=fenced)),
                *self._owned(fenced=fenced),
                func.coalesce(jobs.log_bytes, 0) <= bindparam("room_", type_=Integer()),
            )
            .returning(jobs.id, jobs.log_lines, jobs.last_updated_at)
        )

    def _added(
        self,
        job: FromClause,
        position: ColumnElement[int],
        line: ColumnElement[str],
        entries: FromClause,
        where: ColumnElement[bool],
    ) -> Executable:
        """Return the insert of lines whose last one has the number that `job` has counted."""
        number = job.c.log_lines - bindparam("number_", type_=Integer()) + position
        rows = select(job.c.id, number, line, job.c.last_updated_at).select_from(job.join(entries, true()))
        columns = ["job_id", "line_number", "line", "written_at"]
        return insert(self._log).from_select(columns, rows.where(where)).returning(self._log.c.line_number)
