"""The answers that tell the state of a job, as the OpenAPI document shows them."""

from __future__ import annotations

from flask_async_jobs.api.describe import JobsBlueprint, View
from flask_async_jobs.api.examples import CANCELLED, COMPLETED, FAILURE, STATUS
from flask_async_jobs.api.headers import (
    APPLIED,
    ETAG,
    EXPIRES,
    IF_NONE_MATCH,
    LOCATION,
    NO_STORE,
    PREFER,
    RESULT_LOCATION,
    RETRY_AFTER,
)
from flask_async_jobs.api.problems import MEDIA_TYPE
from flask_async_jobs.api.schemas import AsyncJobFailureSchema, AsyncJobStatusSchema


def tells_state(bp: JobsBlueprint, view: View) -> View:
    """Document the answers of a view that tells the state of a job."""
    read = {**EXPIRES, **RETRY_AFTER, **NO_STORE, **ETAG, **APPLIED}
    view = bp.problems("job-not-found")(view)
    view = bp.answer(
        422,
        AsyncJobFailureSchema,
        content_type=MEDIA_TYPE,
        description="The job failed",
        example=FAILURE,
        headers={**EXPIRES, **NO_STORE, **APPLIED},
    )(view)
    view = bp.answer(304, description="The client knows the current state", headers=read)(view)
    view = _redirects(bp, view, "The job has completed, and its type redirects to the result")
    view = bp.answer(200, AsyncJobStatusSchema, example=STATUS, headers=read)(view)
    return bp.asks(PREFER, IF_NONE_MATCH)(view)


def tells_end(bp: JobsBlueprint, view: View) -> View:
    """Document the answers to a submission that was held until its job had ended, but for the failure."""
    view = bp.answer(
        200,
        AsyncJobStatusSchema,
        description="With `Prefer: wait`: the job has ended",
        example=CANCELLED,
        headers={**LOCATION, **EXPIRES, **ETAG, **APPLIED, **NO_STORE},
    )(view)
    return _redirects(bp, view, "With `Prefer: wait`: the job has completed")


def _redirects(bp: JobsBlueprint, view: View, description: str) -> View:
    headers = {**RESULT_LOCATION, **EXPIRES, **APPLIED, **NO_STORE}
    return bp.answer(303, AsyncJobStatusSchema, description=description, example=COMPLETED, headers=headers)(view)
