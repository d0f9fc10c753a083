"""The consumer application with a handler whose items end in every way."""

import os
from pathlib import Path
from typing import Any

from consumer import PAUSE, File, jobs, record
from consumer import create_app as create_consumer
from flask import Flask
from marshmallow import fields, validate

from flask_async_jobs import JobContext, JobFailed


class Item(File):
    how = fields.String(required=True, validate=validate.OneOf(["complete", "fail", "die", "wait"]))


@jobs.handler("item", payload_schema=Item)
def item(ctx: JobContext, payload: dict[str, Any]) -> None:
    """End as the payload says; `wait` and `die` go on until a file is there or the job is cancelled."""
    record(ctx)
    if payload["how"] == "fail":
        raise JobFailed("Told to fail")
    if payload["how"] == "complete":
        return
    while not Path(payload["file"]).exists() and not ctx.is_cancelled:
        PAUSE.wait(0.05)
    if payload["how"] == "die":
        os._exit(1)


def create_app() -> Flask:
    return create_consumer()
