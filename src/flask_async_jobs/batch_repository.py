"""The store of batches: written with all their items or not at all, and read without their payloads."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self
from uuid import UUID

from sqlalchemy import Connection, Executable, bindparam
from sqlalchemy.types import Integer

from flask_async_jobs.batch_statements import BatchStatements
from flask_async_jobs.caps import limits_of, locks_of
from flask_async_jobs.database import Database
from flask_async_jobs.models import batches_table, jobs_table
from flask_async_jobs.records import Cap, TypeRules, names
from flask_async_jobs.repository import JobRepository
from flask_async_jobs.states import ANY_OWNER, AnyOwner, BatchItem, BatchView, JobError, JobStatus


@dataclass(frozen=True, slots=True)
class NewItem:
    """One item that is ready to be stored; without a payload it needs no fingerprint."""

    item_id: str
    payload: str | None
    fingerprint: str | None
    work_key: str


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch that is ready to be stored, with its items in their order."""

    batch_id: UUID
    type: str
    owner: str
    fingerprint: str
    idempotency_key: str | None
    items: Sequence[NewItem]


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch that a submission found, with what the submission has to be compared to."""

    view: BatchView
    fingerprint: str


class BatchRepository:
    """Every read and write of batches as such; their items are jobs like others, and the job store's.

    Each method raises `StorageUnavailable` when the database cannot be asked.

    Args:
        jobs: The job store, whose database and tables it shares.
    """

    def __init__(self, jobs: JobRepository) -> None:
        self._jobs = jobs
        self.statements = BatchStatements(jobs.database, jobs_table(jobs.schema), batches_table(jobs.schema))
        self._capped: dict[tuple[str, ...], Any] = {}

    @property
    def database(self) -> Database:
        """The database of the job store."""
        return self._jobs.database

    def within(self, connection: Connection) -> Self:
        """Return this store in the transaction of `connection`; see `JobRepository.within`."""
        bound = copy(self)
        bound._jobs = self._jobs.within(connection)
        return bound

    def insert(self, new: NewBatch, caps: Sequence[Cap] = ()) -> BatchView | None:
        """Store a batch and all its items as PENDING jobs in one transaction.

        Two statements and a commit, whatever the size; one more for each cap on PostgreSQL.

        Args:
            new: The batch.
            caps: How many jobs may be active; exact, and for the batch as a whole.

        Returns:
            The batch, or None if it was refused: its key is taken, or a cap leaves no room for all items. Nothing
            is stored then.
        """
        columns = ("type", "owner", "idempotency_key", "fingerprint")
        parameters = {f"{column}_": getattr(new, column) for column in columns}
        parameters |= {"id_": new.batch_id, "items_": len(new.items), **limits_of(caps)}
        locks = locks_of(caps, self._jobs.schema, new.type, new.owner)
        with self.database.together(locks) as transaction:
            rows = transaction.run(self._insertion(caps), parameters)
            if not rows:
                return None
            created_at = rows[0][0]
            common = {"type_": new.type, "owner_": new.owner, "batch_id_": new.batch_id, "created_at_": created_at}
            transaction.run(self.statements.insert_items, {**common, **self._spelled(new.items)})
        size = len(new.items)
        return BatchView(
            new.batch_id, new.type, new.owner or None, created_at, size, size, 0, 0, 0, 0, None, revision=size
        )

    def _insertion(self, caps: Sequence[Cap]) -> Any:
        scopes = tuple(cap.scope for cap in caps)
        if not scopes:
            return self.statements.insert
        if scopes not in self._capped:
            room = self.statements.room(caps, bindparam("items_", type_=Integer()))
            self._capped[scopes] = self.statements.insertion(*room)
        return self._capped[scopes]

    def _spelled(self, items: Sequence[NewItem]) -> dict[str, Any]:
        rows = [(item.item_id, item.payload, item.fingerprint, item.work_key) for item in items]
        if self.database.is_sqlite:
            return {"items_": json.dumps(rows, ensure_ascii=False)}
        columns = ("item_ids_", "payloads_", "fingerprints_", "work_keys_")
        return {name: list(values) for name, values in zip(columns, zip(*rows, strict=True), strict=True)}

    def find_by_key(self, owner: str, idempotency_key: str) -> StoredBatch | None:
        """Return the batch that this key of this owner created."""
        rows = self.database.run(self.statements.by_key, {"owner_": owner, "key_": idempotency_key})
        return StoredBatch(_view_of(rows[0]), rows[0][-1]) if rows else None

    def find(self, batch_id: UUID, owner: str | AnyOwner = ANY_OWNER) -> BatchView | None:
        """Return the batch, its items counted by one statement, or None if it is unknown or another owner's."""
        statement = self._scoped(self.statements.by_id, self.statements.by_id_and_owner, owner)
        rows = self.database.run(statement, self._parameters(batch_id, owner))
        return _view_of(rows[0]) if rows else None

    def find_all(self, batch_ids: Collection[UUID]) -> dict[UUID, BatchView]:
        """Return those of these batches that there are, in one statement."""
        rows = self.database.run(self.statements.by_id, {"ids_": self.database.spelled(*batch_ids)})
        return {batch.batch_id: batch for batch in map(_view_of, rows)}

    def items(
        self, batch_id: UUID, after: int, most: int, owner: str | AnyOwner = ANY_OWNER
    ) -> list[BatchItem] | None:
        """Return up to `most` items in accepted order, those behind the position `after`, by one statement.

        None: the batch is unknown or another owner's.
        """
        statement = self._scoped(self.statements.page, self.statements.page_and_owner, owner)
        parameters = {**self._parameters(batch_id, owner), "after_": after, "most_": most}
        rows = self.database.run(statement, parameters)
        return [_item_of(row) for row in rows if row[0] is not None] if rows else None

    def cancel(self, batch_id: UUID, owner: str | AnyOwner = ANY_OWNER) -> int:
        """Cancel every active item, whoever runs it, and return how many there were."""
        statement = self._scoped(self.statements.cancel, self.statements.cancel_owned, owner)
        cancelled = self.database.run(statement, self._parameters(batch_id, owner))
        if cancelled:
            self._jobs.changed()
            self._jobs.ended([row.id for row in cancelled])
        return len(cancelled)

    def purge(self, rules: Sequence[TypeRules], older_than: timedelta, limit: int) -> tuple[int, int]:
        """Remove up to `limit` batches of these types, each whole, of which every item ended long enough ago.

        Returns:
            How many batches and how many jobs were removed.
        """
        with self.database.together() as transaction:
            parameters = {"types_": names(rules), "most_": limit}
            removed = transaction.run(self.statements.remove, parameters, {"before_": -older_than})
            batch_ids = [row[0] for row in removed if row[0] is not None]
            if not batch_ids:
                return 0, 0
            items = transaction.run(self.statements.remove_items, {"ids_": self.database.spelled(*batch_ids)})
            self._jobs.remove_lines(transaction, items)
        return len(batch_ids), len(items)

    def _parameters(self, batch_id: UUID, owner: str | AnyOwner) -> dict[str, Any]:
        parameters: dict[str, Any] = {"ids_": self.database.spelled(batch_id)}
        return parameters if isinstance(owner, AnyOwner) else {**parameters, "owner_": owner}

    @staticmethod
    def _scoped(anyone: Executable, owned: Executable, owner: str | AnyOwner) -> Executable:
        return anyone if isinstance(owner, AnyOwner) else owned


def _view_of(row: Sequence[Any]) -> BatchView:
    batch_id, type, owner, *rest = row[:12]
    return BatchView(batch_id, type, owner or None, *rest)


def _item_of(row: Sequence[Any]) -> BatchItem:
    position, item_id, job_id, status = row[:4]
    created, updated, started, completed, result, title, detail, code = row[4:]
    error = None if title is None else JobError(title, detail, code or "job-failed")
    return BatchItem(
        position, item_id, job_id, JobStatus(status), created, updated, started, completed, result, error
    )
