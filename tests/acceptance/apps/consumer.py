"""An application as users of the library write it, with the handlers of the scenarios.

Every handler first notes in the table `runs`, on a connection of its own, that it ran: that table, not the library,
counts executions. The environment configures it: HANDLERS adds options to handlers by type, as JSON.
"""

import builtins
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flask import Flask, current_app, request
from flask_sqlalchemy import SQLAlchemy
from marshmallow import Schema, fields
from sqlalchemy import NullPool, create_engine, insert, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_async_jobs import AsyncJobs, JobContext

PAUSE = threading.Event()
RUN = text("INSERT INTO runs (job_id, attempt, pid, thread, at) VALUES (:job_id, :attempt, :pid, :thread, :at)")


class Model(DeclarativeBase):
    pass


db = SQLAlchemy(model_class=Model)
jobs = AsyncJobs()
OPTIONS: dict[str, dict[str, Any]] = json.loads(os.environ.get("HANDLERS", "{}"))


def handler(type: str, **options: Any) -> Callable[[Any], Any]:
    added = dict(OPTIONS.get(type, {}))
    if "retry_on" in added:
        added["retry_on"] = tuple(getattr(builtins, name) for name in added["retry_on"])
    return jobs.handler(type, **options, **added)


class Note(db.Model):
    __tablename__ = "notes"

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]


class Duration(Schema):
    n = fields.Float(required=True)


class Steps(Duration):
    every = fields.Float(load_default=0.1)
    file = fields.String(load_default=None)


class Value(Schema):
    value = fields.Raw(required=True, allow_none=True)


class Text(Schema):
    text = fields.String(required=True)


class How(Schema):
    how = fields.String(required=True)


class File(Schema):
    file = fields.String(required=True)


def record(ctx: JobContext) -> None:
    run = {"job_id": str(ctx.job_id), "attempt": ctx.attempt, "pid": os.getpid(), "at": time.time()}
    with current_app.extensions["side"].begin() as connection:
        connection.execute(RUN, {**run, "thread": threading.current_thread().name})


def note(words: str) -> None:
    db.session.add(Note(text=words))
    db.session.flush()


@handler("quick")
def quick(ctx: JobContext) -> None:
    """Do nothing."""
    record(ctx)


@handler("slow", payload_schema=Steps)
def slow(ctx: JobContext, steps: dict[str, Any]) -> None:
    """Take n seconds, or until a file is there, and report each `every` seconds."""
    record(ctx)
    start, file = time.monotonic(), steps["file"]
    while (elapsed := time.monotonic() - start) < steps["n"] and ctx.progress(100 * elapsed / steps["n"]):
        if file and Path(file).exists():
            return
        PAUSE.wait(steps["every"])


@handler("lines", payload_schema=Steps)
def lines(ctx: JobContext, steps: dict[str, float]) -> None:
    """Take n seconds, and log each `every` seconds."""
    record(ctx)
    start, number = time.monotonic(), 0
    while time.monotonic() - start < steps["n"] and ctx.log(f"{ctx.attempt}:{(number := number + 1)}"):
        PAUSE.wait(steps["every"])


@handler("silent", payload_schema=Duration)
def silent(ctx: JobContext, steps: dict[str, float]) -> None:
    """Take n seconds, and report nothing."""
    record(ctx)
    PAUSE.wait(steps["n"])


@handler("ret", payload_schema=Value)
def ret(ctx: JobContext, payload: dict[str, Any]) -> Any:
    """Return the value."""
    record(ctx)
    return payload["value"]


@handler("boom", payload_schema=Text)
def boom(ctx: JobContext, payload: dict[str, str]) -> None:
    """Raise."""
    record(ctx)
    raise RuntimeError(payload["text"])


@handler("die")
def die(ctx: JobContext) -> None:
    """Take the whole process along."""
    record(ctx)
    os._exit(1)


@handler("gate", payload_schema=File)
def gate(ctx: JobContext, payload: dict[str, str]) -> None:
    """Wait until a file is there."""
    record(ctx)
    while not Path(payload["file"]).exists():
        PAUSE.wait(0.02)


@handler("context")
def context(ctx: JobContext) -> None:
    """Use whatever an application context offers, and try the request."""
    record(ctx)
    try:
        asked = request.path
    except RuntimeError as error:
        asked = str(error)
    current_app.logger.warning("the colour is %s", current_app.config["COLOUR"])
    note(json.dumps({"job": str(ctx.job_id), "colour": current_app.config["COLOUR"], "request": asked}))
    db.session.commit()


@handler("spoil")
def spoil(ctx: JobContext) -> None:
    """Begin a transaction, make the session useless and raise."""
    record(ctx)
    db.session.scalars(select(Note)).all()
    for _ in range(2):
        db.session.execute(insert(Note).values(id=1_000_000, text="twice"))


@handler("copy")
def copy(ctx: JobContext) -> None:
    """Write what the newest note says once more."""
    record(ctx)
    newest = db.session.scalars(select(Note).order_by(Note.id.desc())).first()
    note(f"copy of {newest and newest.text}")
    db.session.commit()


@handler("read")
def read(ctx: JobContext) -> None:
    """Read, and leave the transaction open."""
    record(ctx)
    db.session.scalars(select(Note)).all()
    db.session.execute(text("SELECT * FROM notes")).all()


@handler("leave", payload_schema=How)
def leave(ctx: JobContext, payload: dict[str, str]) -> None:
    """Leave a note uncommitted, written in one of many ways."""
    record(ctx)
    WAYS[payload["how"]]()


def savepoint_released() -> None:
    note("left")  # first: SQLite's driver begins no transaction for a savepoint, and its release would commit
    with db.session.begin_nested():
        note("left")


def savepoint_rolled_back() -> None:
    note("left")
    with db.session.begin_nested() as savepoint:
        note("never there")
        savepoint.rollback()


def after_a_commit() -> None:
    db.session.commit()
    note("left")


def in_a_second_session() -> None:
    db.session.remove()
    note("left")


WAYS: dict[str, Callable[[], object]] = {
    "add": lambda: db.session.add(Note(text="left")),
    "flush": lambda: note("left"),
    "insert": lambda: db.session.execute(insert(Note).values(text="left")),
    "bulk": lambda: db.session.bulk_save_objects([Note(text="left")]),
    "text": lambda: db.session.execute(text("INSERT INTO notes (text) VALUES ('left')")),
    "connection": lambda: db.session.connection().execute(insert(Note).values(text="left")),
    "savepoint released": savepoint_released,
    "savepoint rolled back": savepoint_rolled_back,
    "after a commit": after_a_commit,
    "in a second session": in_a_second_session,
}


def create_app(url: str | None = None, colour: str = "green") -> Flask:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = url or os.environ["DATABASE_URL"]
    app.config["SQLALCHEMY_ENGINE_OPTIONS"] = json.loads(os.environ.get("ENGINE_OPTIONS", "{}"))
    app.config["COLOUR"] = colour
    app.config.update({key: _value(os.environ[key]) for key in os.environ if key.startswith("ASYNC_JOBS_")})
    if "PROXY_FIX" in os.environ:
        app.wsgi_app = ProxyFix(app.wsgi_app, x_prefix=1, x_host=1)  # type: ignore[method-assign]
    app.extensions["side"] = create_engine(app.config["SQLALCHEMY_DATABASE_URI"], poolclass=NullPool)
    db.init_app(app)
    jobs.init_app(app)
    app.add_url_rule("/", view_func=lambda: {"pid": os.getpid()}, endpoint="process")
    app.add_url_rule("/pool", view_func=lambda: {"checkedOut": db.engine.pool.checkedout()}, endpoint="pool")
    return app


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
