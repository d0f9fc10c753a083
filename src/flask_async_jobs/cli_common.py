"""What the commands below `flask async-jobs` share."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import click
from flask import current_app

from flask_async_jobs.api import replies
from flask_async_jobs.instance import Instance
from flask_async_jobs.states import JobView, uuid_form

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def current_instance() -> Instance:
    """Return the library in the application that runs the command."""
    instance: Instance = current_app.extensions["async_jobs"]
    return instance


class JobId(click.ParamType[UUID]):
    """The id of a job, in its 36-character form."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> UUID:
        """Read the 36-character form of an id."""
        if isinstance(value, UUID):
            return value
        if not uuid_form.fullmatch(value):
            self.fail(f"{value!r} is not the id of a job", param, ctx)
        return UUID(value)


def as_dict(job: JobView) -> dict[str, Any]:
    """Return a job as its status body has it, and why it failed."""
    body = replies.status_body(job)
    if job.error is not None:
        body["error"] = {"title": job.error.title, "detail": job.error.detail, "code": job.error.code}
    return body
