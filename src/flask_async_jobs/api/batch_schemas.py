"""The bodies of requests and answers about batches, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any

from marshmallow import Schema, fields, validate

from flask_async_jobs.api.schemas import AsyncJobProblemSchema
from flask_async_jobs.batches import ITEM_ID_LIMIT
from flask_async_jobs.registry import Handler
from flask_async_jobs.states import JobStatus

_batch_states = [JobStatus.PENDING, JobStatus.PROCESSING, JobStatus.COMPLETED]


def _about(text: str) -> dict[str, Any]:
    return {"description": text}


def _count(text: str) -> fields.Integer:
    return fields.Integer(required=True, validate=validate.Range(0), metadata=_about(text))


class AsyncJobBatchAcceptedSchema(Schema):
    """The answer to the submission of a batch."""

    batchId = fields.UUID(required=True)
    status = fields.String(required=True, validate=validate.OneOf(_batch_states))
    submittedAt = fields.AwareDateTime(required=True)
    total = _count("How many items there are.")
    statusUrl = fields.Url(required=True, metadata=_about("Where to ask how far it is, and what to DELETE."))
    itemsUrl = fields.Url(required=True, metadata=_about("The items with their results, page by page."))
    eventsUrl = fields.Url(required=True, metadata=_about("Changes as server-sent events."))


class AsyncJobBatchSchema(Schema):
    """How far a batch is."""

    batchId = fields.UUID(required=True)
    jobType = fields.String(required=True)
    status = fields.String(
        required=True,
        validate=validate.OneOf(_batch_states),
        metadata=_about("COMPLETED: every item has ended, successfully or not."),
    )
    submittedAt = fields.AwareDateTime(required=True)
    completedAt = fields.AwareDateTime(required=True, allow_none=True, metadata=_about("When the last item ended."))
    total = _count("How many items there are; the other counts add up to it.")
    pending = _count("Items that wait.")
    processing = _count("Items that are being worked on.")
    completed = _count("Items that succeeded.")
    failed = _count("Items that failed.")
    cancelled = _count("Items that were cancelled.")
    itemsUrl = fields.Url(required=True, metadata=_about("The items with their results, page by page."))


class AsyncJobItemErrorSchema(Schema):
    """Why an item failed."""

    title = fields.String(required=True)
    detail = fields.String(required=True, allow_none=True)
    code = fields.String(required=True, metadata=_about("A stable code for programs."))


class AsyncJobItemSchema(Schema):
    """One item of a batch."""

    itemId = fields.String(required=True, metadata=_about("The client's name for it."))
    jobId = fields.UUID(required=True, metadata=_about("The job that it is."))
    status = fields.String(required=True, validate=validate.OneOf(list(JobStatus)))
    createdAt = fields.AwareDateTime(required=True)
    startedAt = fields.AwareDateTime(required=True, allow_none=True)
    lastUpdatedAt = fields.AwareDateTime(required=True)
    completedAt = fields.AwareDateTime(required=True, allow_none=True)
    error = fields.Nested(AsyncJobItemErrorSchema, required=True, allow_none=True)
    result = fields.Raw(required=True, allow_none=True, metadata=_about("What its handler returned, if COMPLETED."))


class AsyncJobBatchPageSchema(Schema):
    """A page of items in the order in which they were submitted."""

    batchId = fields.UUID(required=True)
    items = fields.List(fields.Nested(AsyncJobItemSchema), required=True)
    nextAfter = fields.Integer(
        required=True, allow_none=True, metadata=_about("The `after` of the next page; null on the last.")
    )


class AsyncJobBatchConflictSchema(AsyncJobProblemSchema):
    """The problem that a batch has ended already."""

    batchId = fields.UUID(required=True)
    batchStatus = fields.String(required=True, validate=validate.OneOf([JobStatus.COMPLETED]))


def batch_request_schema(handler: Handler, most: int) -> dict[str, Any]:
    """Return the schema of a submission: up to `most` items, each with a payload of the type."""
    item_id = {"type": "string", "minLength": 1, "maxLength": ITEM_ID_LIMIT, "pattern": r"\S"}
    payload = handler.options.payload_schema or {"type": "object", "maxProperties": 0}
    item = {
        "type": "object",
        "required": ["itemId"],
        "properties": {"itemId": {**item_id, "description": "Unique in the batch."}, "payload": payload},
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "required": ["items"],
        "properties": {"items": {"type": "array", "minItems": 1, "maxItems": most, "items": item}},
        "additionalProperties": False,
    }
