"""Reading jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from flask_async_jobs.records import Count, view_of
from flask_async_jobs.states import ANY_OWNER, AnyOwner, JobStatus, JobView
from flask_async_jobs.store import Store


class ReadingStore(Store):
    """The part of the job store that only reads."""

    def find(self, job_id: UUID, owner: str | AnyOwner = ANY_OWNER) -> JobView | None:
        """Return the job with neither payload nor result, or None if it is unknown or another owner's."""
        statement, parameters = self._scoped(self.statements.by_id, self.statements.by_id_and_owner, job_id, owner)
        rows = self.database.run(statement, parameters)
        return view_of(rows[0]) if rows else None

    def find_all(self, job_ids: Collection[UUID]) -> dict[UUID, JobView]:
        """Return those of these jobs that there are, in one statement."""
        rows = self.database.run(self.statements.by_id, {"ids_": self.database.spelled(*job_ids)})
        return {job.job_id: job for job in map(view_of, rows)}

    def result_of(self, job_id: UUID) -> str | None:
        """Return the stored result as JSON text, or None."""
        rows = self.database.run(self.statements.result, {"ids_": self.database.spelled(job_id)})
        text: str | None = rows[0][0] if rows else None
        return text

    def is_running(self, job_id: UUID, execution_token: UUID | None) -> bool:
        """Return whether this attempt is still the running one; without a token, whether any is."""
        running = self.statements.running[execution_token is not None]
        return bool(self.database.run(running, self._attempt(job_id, execution_token)))

    def newest(
        self, limit: int, *, type: str | None = None, status: JobStatus | None = None, after: UUID | None = None
    ) -> list[JobView]:
        """Return up to `limit` jobs, the newest first, those that are older than the job `after`."""
        parameters: dict[str, Any] = {"most_": limit}
        if type is not None:
            parameters["type_"] = type
        if after is not None:
            parameters["ids_"] = self.database.spelled(after)
        rows = self.database.run(self.statements.listing(type, status, after), parameters)
        return [view_of(row) for row in rows]

    def counts(self) -> list[Count]:
        """Return how many jobs there are of each type and status. Reads the whole table."""
        rows: Sequence[Sequence[Any]] = self.database.run(self.statements.counts())
        return [Count(type, status, jobs, now - oldest) for type, status, jobs, oldest, now in rows]
