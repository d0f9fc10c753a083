"""An application whose session reads from a replica, by the verb of the statement as SQLAlchemy's guide shows it.

The replica is the database REPLICA_URL: it refuses every write, and lags behind for ever.
"""

import os
from typing import Any

from consumer import _value
from flask import Flask, Response
from flask_sqlalchemy import SQLAlchemy
from flask_sqlalchemy.session import Session
from sqlalchemy import Delete, Engine, Insert, Update, column, insert, table, text
from sqlalchemy.orm import DeclarativeBase

from flask_async_jobs import AsyncJobs, JobContext

NOTES = table("notes", column("text"))
COUNT_JOBS = text("SELECT count(*) FROM async_jobs")


class Model(DeclarativeBase):
    pass


class Routing(Session):
    """Sends writes to the database, and everything else to the replica."""

    def get_bind(self, mapper: Any = None, clause: Any = None, bind: Any = None, **options: Any) -> Engine:
        writes = self._flushing or isinstance(clause, Insert | Update | Delete)
        return bind or db.engines[None if writes else "replica"]


db = SQLAlchemy(model_class=Model, session_options={"class_": Routing})
jobs = AsyncJobs()


@jobs.handler("quick")
def quick(ctx: JobContext) -> dict[str, Any]:
    """Report, and tell how many jobs the session sees."""
    ctx.progress(50)
    return {"seen": db.session.scalar(COUNT_JOBS), "cancelled": ctx.is_cancelled}


@jobs.handler("atomic", atomic=True)
def atomic() -> None:
    """Leave a note in the transaction in which the job completes."""
    db.session.execute(insert(NOTES).values(text="left"))


def submit() -> Response:
    """Submit in the transaction of the session, with a note."""
    db.session.execute(insert(NOTES).values(text="submitted"))
    submitted = jobs.submit("atomic", session=db.session)
    db.session.commit()
    return jobs.accepted(submitted)


def create_app() -> Flask:
    app = Flask(__name__)
    app.config["SQLALCHEMY_DATABASE_URI"] = os.environ["DATABASE_URL"]
    app.config["SQLALCHEMY_BINDS"] = {"replica": os.environ["REPLICA_URL"]}
    app.config.update({key: _value(os.environ[key]) for key in os.environ if key.startswith("ASYNC_JOBS_")})
    db.init_app(app)
    jobs.init_app(app)
    app.add_url_rule("/submit", view_func=submit, methods=["POST"])
    return app
