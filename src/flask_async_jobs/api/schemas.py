"""The bodies of answers, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any

from marshmallow import Schema, fields, validate

from flask_async_jobs.states import Disposition, JobStatus


def _about(text: str, **more: Any) -> dict[str, Any]:
    return {"description": text, **more}


class AsyncJobAcceptedSchema(Schema):
    """The answer to a submission."""

    jobId = fields.UUID(required=True, metadata=_about("The id of the job."))
    status = fields.String(required=True, validate=validate.OneOf(list(JobStatus)))
    disposition = fields.String(
        required=True,
        validate=validate.OneOf(list(Disposition)),
        metadata=_about(
            "`created`: a new job. `replayed`: the job of this Idempotency-Key. `fresh`: one that completed within "
            "the freshness window. `coalesced`: one that is active."
        ),
    )
    statusUrl = fields.Url(required=True, metadata=_about("Where to ask for the state."))
    eventsUrl = fields.Url(required=True, metadata=_about("State changes as server-sent events."))
    logUrl = fields.Url(required=True, metadata=_about("The progress lines."))
    operationUrl = fields.Url(required=True, metadata=_about("The state in the words of stock pollers."))
    cancelUrl = fields.Url(required=True, metadata=_about("What to DELETE in order to cancel."))


class _StateSchema(Schema):
    jobId = fields.UUID(required=True)
    jobType = fields.String(required=True)
    createdAt = fields.AwareDateTime(required=True)
    lastUpdatedAt = fields.AwareDateTime(required=True)
    percentComplete = fields.Integer(
        required=True,
        allow_none=True,
        validate=validate.Range(0, 100),
        metadata=_about("100 when COMPLETED."),
    )
    attempt = fields.Integer(required=True, metadata=_about("How often the job was started.", minimum=0))
    effectStarted = fields.Boolean(
        required=True,
        metadata=_about("Whether the work began to have effects that a cancellation does not undo."),
    )
    startedAt = fields.AwareDateTime(metadata=_about("When the latest attempt started."))
    completedAt = fields.AwareDateTime(metadata=_about("When the job ended."))
    resultUrl = fields.Url(metadata=_about("Where the result is."))
    batchId = fields.UUID(metadata=_about("The batch that the job is a part of."))


class AsyncJobStatusSchema(_StateSchema):
    """The state of a job that has not failed."""

    status = fields.String(
        required=True, validate=validate.OneOf([s for s in JobStatus if s is not JobStatus.FAILED])
    )


class AsyncJobProblemSchema(Schema):
    """A problem document (RFC 9457)."""

    type = fields.String(required=True, metadata=_about("A URI that names the kind of problem."))
    title = fields.String(required=True)
    status = fields.Integer(required=True)
    detail = fields.String()
    instance = fields.String()
    code = fields.String(metadata=_about("A stable code for programs."))
    errors = fields.Dict(metadata=_about("The messages by field."))


class AsyncJobFailureSchema(AsyncJobProblemSchema, _StateSchema):
    """The state of a FAILED job, as a problem document."""

    code = fields.String(required=True, metadata=_about("A stable code for programs."))
    jobStatus = fields.String(required=True, validate=validate.OneOf([JobStatus.FAILED]))


class AsyncJobConflictSchema(AsyncJobProblemSchema):
    """The problem that a job has ended already."""

    jobId = fields.UUID(required=True)
    jobStatus = fields.String(required=True, validate=validate.OneOf(list(JobStatus)))


class AsyncJobOperationErrorSchema(Schema):
    """Why an operation failed."""

    code = fields.String(required=True)
    message = fields.String(required=True)


class AsyncJobOperationSchema(Schema):
    """The state of a job in the words of stock long-running-operation clients."""

    id = fields.UUID(required=True)
    status = fields.String(
        required=True, validate=validate.OneOf(["NotStarted", "Running", "Succeeded", "Failed", "Canceled"])
    )
    createdDateTime = fields.AwareDateTime(required=True)
    lastActionDateTime = fields.AwareDateTime(required=True)
    percentComplete = fields.Integer(required=True, allow_none=True)
    error = fields.Nested(AsyncJobOperationErrorSchema)


class AsyncJobLogLineSchema(Schema):
    """One line of a job's log."""

    id = fields.Integer(required=True, metadata=_about("The number of the line, from 1.", minimum=1))
    line = fields.String(required=True)
    at = fields.AwareDateTime(required=True, metadata=_about("When it was written."))


class AsyncJobLogSchema(Schema):
    """A page of a job's log."""

    lines = fields.List(fields.Nested(AsyncJobLogLineSchema), required=True)
    nextAfter = fields.Integer(
        required=True,
        allow_none=True,
        metadata=_about(
            "The `after` of the next page; null once the job has ended and nothing is left.", minimum=0
        ),
    )
