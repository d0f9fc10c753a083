"""The application under load: the library's routes, and beside them bare flask-smorest routes as the floor."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import marshmallow
from flask import Flask, Response
from flask_smorest import Api, Blueprint
from sqlalchemy import Column, Table, create_engine, insert, select

from flask_async_jobs import AsyncJobs
from flask_async_jobs.models import jobs_table

jobs = AsyncJobs()


@jobs.handler("noop")
def noop() -> None:
    """Do nothing."""


class ListingSchema(marshmallow.Schema):
    """What `review` takes."""

    title = marshmallow.fields.String(required=True, validate=marshmallow.validate.Length(1, 200))
    description = marshmallow.fields.String(required=True)
    category = marshmallow.fields.String()
    price = marshmallow.fields.Decimal(required=True)
    attributes = marshmallow.fields.Dict(marshmallow.fields.String(), marshmallow.fields.String())


@jobs.handler("review", payload_schema=ListingSchema)
def review(ctx: object, listing: dict[str, Any]) -> None:
    """Review one listing."""


class RowSchema(marshmallow.Schema):
    """What a bare route answers."""

    id = marshmallow.fields.String()
    type = marshmallow.fields.String()
    status = marshmallow.fields.String()
    created_at = marshmallow.fields.DateTime()


def create_app() -> Flask:
    """Return the application; it accepts jobs and runs none, so that only requests are measured."""
    app = Flask(__name__)
    app.config.update(
        ASYNC_JOBS_PROCESSING_ENABLED=False,
        ASYNC_JOBS_BATCH_MAX_ITEMS=10_000,
        ASYNC_JOBS_RECOVERY_ENABLED=False,
        ASYNC_JOBS_SSE_MAX_STREAMS=3000,
        ASYNC_JOBS_SSE_MAX_SUBSCRIBERS=3000,
        ASYNC_JOBS_NOTIFY_ENABLED=os.environ.get("NOTIFY") != "0",
        API_TITLE="bench",
        API_VERSION="1",
        OPENAPI_VERSION="3.1.0",
    )
    engine = create_engine(os.environ["DATABASE_URL"], pool_size=16)
    api = Api(app)
    jobs.init_app(app, engine=engine, api=api)
    api.register_blueprint(_floor(engine.execution_options(isolation_level="AUTOCOMMIT")))
    return app


def _floor(engine: Any) -> Blueprint:
    table = jobs_table()
    floor = Blueprint("floor", __name__, url_prefix="/floor")

    @floor.route("/", methods=["POST"])
    @floor.response(202, RowSchema)
    def create() -> Any:
        """Insert one row."""
        now = datetime.now(UTC)
        values = {"id": uuid4(), "type": "floor", "status": "PENDING", "created_at": now, "last_updated_at": now}
        with engine.begin() as connection:
            row = connection.execute(insert(table).values(**values).returning(*_shown(table))).one()
        return row._mapping

    @floor.route("/<uuid:id>")
    @floor.response(200, RowSchema)
    def read(id: Any) -> Any:
        """Select one row by its primary key."""
        with engine.begin() as connection:
            row = connection.execute(select(*_shown(table)).where(table.c.id == id)).one()
        return row._mapping

    @floor.route("/<uuid:id>/events")
    def events(id: Any) -> Response:
        """Stream the state of a row as a loop that reads it each second."""

        def blocks() -> Iterator[str]:
            seen = None
            while True:
                with engine.begin() as connection:
                    row = connection.execute(select(*_shown(table), table.c.revision).where(table.c.id == id)).one()
                if row.revision != seen:
                    seen = row.revision
                    yield f"event: status\nid: {seen}\ndata: {row.status}\n\n"
                time.sleep(1)

        return Response(blocks(), mimetype="text/event-stream")

    return floor


def _shown(table: Table) -> list[Column[Any]]:
    return [table.c.id, table.c.type, table.c.status, table.c.created_at]
