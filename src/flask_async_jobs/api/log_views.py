"""The route of a job's log. The view's docstring is its text in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable

from flask import Response

from flask_async_jobs.api.describe import EXACTLY, JobsBlueprint, View
from flask_async_jobs.api.examples import LOG, LOG_PAGE
from flask_async_jobs.api.headers import LAST_EVENT_ID, LAST_EVENT_ID_QUERY, NO_STORE, STREAM_HEADERS
from flask_async_jobs.api.logs import PAGES, log
from flask_async_jobs.api.requests import found
from flask_async_jobs.api.schemas import AsyncJobLogSchema
from flask_async_jobs.api.service import JobService


def add_log(bp: JobsBlueprint, service: JobService, answers: Callable[[View], View]) -> None:
    """Add the route."""

    @bp.route("/<job_id>/log", methods=["GET"], **EXACTLY)
    @answers
    @bp.answer(200, AsyncJobLogSchema, description="A page, or the stream", example=LOG_PAGE, headers=NO_STORE)
    @bp.answer(
        200,
        {"type": "string"},
        content_type="text/event-stream",
        description="A page, or the stream",
        example=LOG,
        headers=STREAM_HEADERS,
    )
    @bp.answer(
        400,
        description="The stream cannot begin there: no number, or more than there are lines. Without a body",
        headers=NO_STORE,
    )
    @bp.asks(LAST_EVENT_ID, LAST_EVENT_ID_QUERY, *PAGES.parameters)
    @bp.problems("job-not-found", "invalid-parameters", "too-many-subscribers", "too-many-streams")
    def get_log(job_id: str) -> Response:
        """Read the log of a job, or follow it.

        The lines that the job's handler has logged. With `Accept: text/event-stream` as server-sent events: a
        `progress` event for each line, whose id is the number of the line, and in the end one `result` event with
        the state, or the problem document of a failed job. `Last-Event-ID` or `lastEventId` says which line the
        client knows as the last one; without it only lines that are written from now on are sent. Otherwise in
        pages: `nextAfter` is the `after` of the next one.
        """
        return log(service, found(service, job_id))
