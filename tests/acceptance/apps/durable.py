"""The consumer application with the handlers and routes of the scenarios about connections, types and answers.

The environment configures it: LETTERS names types that only some instances know.
"""

import os
import time
from typing import Any

from consumer import PAUSE, File, Steps, db, gate, handler, jobs, record
from consumer import create_app as create_consumer
from flask import Flask, current_app
from sqlalchemy import text

from flask_async_jobs import JobContext

NOTE = text("INSERT INTO notes (text) VALUES (:text)")
ANSWERS: dict[str, dict[str, Any]] = {
    "always": {"coalesce": False},
    "fresh": {"coalesce": False, "freshness": "PT1M"},
    "single": {"coalesce": True},
    "fresh-single": {"coalesce": True, "freshness": "PT1M"},
}


@handler("hold", payload_schema=Steps)
def hold(ctx: JobContext, steps: dict[str, float]) -> None:
    """Keep a transaction open for n seconds, report as `slow` does, and note how long a report took at most."""
    record(ctx)
    db.session.execute(text("SELECT 1"))
    start, longest = time.monotonic(), 0.0
    while (elapsed := time.monotonic() - start) < steps["n"]:
        ctx.progress(100 * elapsed / steps["n"])
        longest = max(longest, time.monotonic() - start - elapsed)
        PAUSE.wait(steps["every"])
    with current_app.extensions["side"].begin() as connection:
        connection.execute(NOTE, {"text": str(longest)})


for name, options in ANSWERS.items():
    jobs.register(name, gate, payload_schema=File, **options)
for letter in os.environ.get("LETTERS", ""):
    jobs.register(letter, gate, payload_schema=File)


def echo(number: int) -> dict[str, int | None]:
    """Send the number through the database, and tell who brought it."""
    row = db.session.execute(text("SELECT CAST(:number AS integer), pg_backend_pid()"), {"number": number}).one()
    return {"number": row[0], "backend": row[1], "pid": os.getpid(), "forbidden": current_app.config["PARENT"]}


def create_app() -> Flask:
    app = create_consumer()
    app.config["PARENT"] = None
    app.add_url_rule("/echo/<int:number>", view_func=echo)
    return app
