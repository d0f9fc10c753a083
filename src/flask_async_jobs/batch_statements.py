"""The rules of batches: how one is written as a whole, counted, read in pages, cancelled and removed."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ARRAY,
    CTE,
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    Table,
    Text,
    bindparam,
    delete,
    func,
    literal_column,
    or_,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite

from flask_async_jobs.column_types import Instant
from flask_async_jobs.database import Database
from flask_async_jobs.expressions import random_identifier
from flask_async_jobs.transitions import (
    CANCELLED,
    COMPLETED,
    FAILED,
    PENDING,
    PROCESSING,
    Transitions,
    checked,
    limit,
)

_given = ("item_id", "payload", "fingerprint", "work_key")


class BatchStatements(Transitions):
    """The statements on `async_job_batches` and the jobs that are its items."""

    def __init__(self, database: Database, jobs: Table, batches: Table) -> None:
        super().__init__(database, jobs)
        self._batches = batches
        has_batch = database.one_of(batches.c.id, "ids_")
        owned = batches.c.owner == bindparam("owner_")
        self._is_item = database.one_of(jobs.c.batch_id, "ids_")
        named = select(batches.c.id).where(owned, batches.c.idempotency_key == bindparam("key_")).scalar_subquery()

        self.insert = self.insertion()
        self.insert_items = self._insert_items()
        self.by_key = self._summary(jobs.c.batch_id == named, batches.c.id == named)
        self.by_id = self._summary(self._is_item, has_batch)
        self.by_id_and_owner = self.by_id.where(owned)
        self.page = self._page(has_batch)
        self.page_and_owner = self.page.where(owned)
        self.cancel = self._cancel()
        self.cancel_owned = self._cancel(jobs.c.owner == bindparam("owner_"))
        self.remove = self._remove()
        self.remove_items = (
            delete(jobs).where(self._is_one_of(self._in_order())).returning(jobs.c.id, jobs.c.log_lines)
        )

    def insertion(self, *where: ColumnElement[bool]) -> Any:
        """Return the insert of a batch under `where`, which stores nothing if its key is taken."""
        batches = self._batches
        names = ("id", "type", "owner", "idempotency_key", "fingerprint")
        values: dict[str, Any] = {name: bindparam(f"{name}_", type_=batches.c[name].type) for name in names}
        values["created_at"] = self._database.now
        insert = self._inserting(batches)
        stored = (
            insert.from_select(list(values), select(*values.values()).where(*where))
            if where
            else insert.values(**values)
        )
        return stored.on_conflict_do_nothing().returning(batches.c.created_at)

    def _insert_items(self) -> Any:
        """Return the insert of every item in one statement, whose parameters are as many whatever their number."""
        jobs = self._columns
        position, items = self._items()
        common = {name: bindparam(f"{name}_", type_=jobs[name].type) for name in ("type", "owner", "batch_id")}
        instants = ("created_at", "last_updated_at", "available_at")
        values: dict[str, Any] = {
            "id": random_identifier(),
            "status": PENDING,
            **common,
            **dict.fromkeys(instants, bindparam("created_at_", type_=Instant())),
            "item_position": position,
            **items,
        }
        return self._inserting(self._jobs).from_select(list(values), select(*values.values()))

    def _items(self) -> tuple[ColumnElement[Any], dict[str, ColumnElement[Any]]]:
        """Return the position and the columns of each item: of arrays on PostgreSQL, of one JSON text on SQLite."""
        if self._database.is_sqlite:
            rows = func.json_each(bindparam("items_", type_=Text())).table_valued("key", "value", name="items")
            return rows.c.key + literal_column("1"), {
                name: func.json_extract(rows.c.value, literal_column(f"'$[{index}]'"))
                for index, name in enumerate(_given)
            }
        arrays = (bindparam(f"{name}s_", type_=ARRAY(Text())) for name in _given)
        unnested = func.unnest(*arrays).table_valued(*_given, with_ordinality="position", name="items")
        table = unnested.render_derived()
        return table.c.position, {name: table.c[name] for name in _given}

    def _inserting(self, table: Table) -> Any:
        return (sqlite if self._database.is_sqlite else postgresql).insert(table)

    def _summary(self, is_item: ColumnElement[bool], *where: ColumnElement[bool]) -> Select[Any]:
        """Return the query for batches, their items counted: the members of a `BatchView`, and the fingerprint."""
        jobs, batches = self._columns, self._batches.c
        states = {
            "pending": PENDING,
            "processing": PROCESSING,
            "completed": COMPLETED,
            "failed": FAILED,
            "cancelled": CANCELLED,
        }
        counted = (
            select(
                jobs.batch_id,
                func.count().label("total"),
                *(func.count().filter(jobs.status == state).label(name) for name, state in states.items()),
                func.max(jobs.completed_at, type_=Instant()).label("ended_at"),
                func.sum(jobs.revision, type_=BigInteger()).label("revision"),
            )
            .where(is_item)
            .group_by(jobs.batch_id)
            .subquery("counted")
        )
        none: ColumnElement[int] = literal_column("0")
        counts = [func.coalesce(counted.c[name], none) for name in ("total", *states)]
        return (
            select(
                *(batches.id, batches.type, batches.owner, batches.created_at),
                *counts,
                counted.c.ended_at,
                func.coalesce(counted.c.revision, none),
                batches.fingerprint,
            )
            .select_from(self._batches.outerjoin(counted, counted.c.batch_id == batches.id))
            .where(*where)
        )

    def _page(self, has_batch: ColumnElement[bool]) -> Select[Any]:
        """Return the query for `most_` items behind the position `after_`; one row of NULL if there is none."""
        jobs = self._columns
        names = (
            *("item_position", "item_id", "id", "status"),
            *("created_at", "last_updated_at", "started_at", "completed_at"),
            *("result", "error_title", "error_detail", "error_code"),
        )
        items = (
            select(*(jobs[name] for name in names), jobs.batch_id)
            .where(self._is_item, jobs.item_position > bindparam("after_", type_=Integer()))
            .order_by(jobs.item_position)
            .limit(limit("most_"))
            .subquery("items")
        )
        return (
            select(*(items.c[name] for name in names))
            .select_from(self._batches.outerjoin(items, items.c.batch_id == self._batches.c.id))
            .where(has_batch)
            .order_by(items.c.item_position)
        )

    def _cancel(self, *where: ColumnElement[bool]) -> Any:
        active = self._columns.status.in_([PENDING, PROCESSING])
        return (
            self._writing(**self._ended(CANCELLED))
            .where(self._is_one_of(self._in_order(checked(active, *where))), checked(active))
            .returning(self._columns.id)
        )

    def _in_order(self, *where: ColumnElement[bool]) -> CTE:
        """Return the items locked in the order of their ids, so that no two who take several wait in a ring."""
        jobs = self._columns
        return select(jobs.id).where(self._is_item, *where).order_by(jobs.id).with_for_update().cte("locked")

    def _remove(self) -> Any:
        """Return the removal of up to `most_` batches of which every item ended before `before_`."""
        jobs, batches, before = self._columns, self._batches.c, self._database.after("before_")
        kept = or_(jobs.completed_at.is_(None), jobs.completed_at >= before, jobs.last_updated_at >= before)
        # A sub-query of its own for each batch: as an anti-join it might read every job there is.
        one_kept = (
            select(jobs.id)
            .where(jobs.batch_id == batches.id, checked(kept))
            .limit(1)
            .correlate(self._batches)
            .scalar_subquery()
        )
        expired = (
            select(batches.id)
            .where(
                batches.created_at < before,
                checked(batches.type.in_(bindparam("types_", expanding=True)), one_kept.is_(None)),
            )
            .order_by(batches.created_at)
            .limit(limit("most_"))
            .with_for_update(skip_locked=True)
            .cte("locked")
        )
        return delete(self._batches).where(self._is_one_of(expired, batches.id)).returning(batches.id)
