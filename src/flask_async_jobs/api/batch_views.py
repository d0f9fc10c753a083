"""The routes on batches. A view's docstring is its text in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable

from flask import Response, request

from flask_async_jobs.api import batch_replies as replies
from flask_async_jobs.api.batch_examples import ACCEPTED, CONFLICT, EVENTS, PAGE, SUMMARY
from flask_async_jobs.api.batch_requests import BATCH_NOT_FOUND, PAGES, batch_id_of, items_of
from flask_async_jobs.api.batch_schemas import (
    AsyncJobBatchAcceptedSchema,
    AsyncJobBatchConflictSchema,
    AsyncJobBatchPageSchema,
    AsyncJobBatchSchema,
)
from flask_async_jobs.api.boundary import answering, but_for_types, reply, stored_reply
from flask_async_jobs.api.describe import EXACTLY, OF_SUBMISSIONS, JobsBlueprint, View
from flask_async_jobs.api.headers import (
    BATCH_LOCATION,
    LAST_EVENT_ID,
    NO_STORE,
    RETRY_AFTER,
    STREAM_HEADERS,
)
from flask_async_jobs.api.problems import MEDIA_TYPE, Problem, ProblemRaised
from flask_async_jobs.api.requests import idempotency_key_of
from flask_async_jobs.api.service import JobService
from flask_async_jobs.api.streams import batch_events
from flask_async_jobs.api.urls import BatchUrls, urls_of_batch
from flask_async_jobs.batches import BatchRequest
from flask_async_jobs.errors import InvalidIdempotencyKey
from flask_async_jobs.states import BatchView, CancelResult

NAME = "async_job_batches"


def batches_blueprint(service: JobService) -> tuple[JobsBlueprint, View]:
    """Return the routes on batches, and the view whose documentation each type's operation is made of."""
    bp = JobsBlueprint(NAME, __name__, description="Batches of jobs: submit, follow, read the results, cancel.")
    answers = answering(lambda: service.settings.retry_after_seconds)
    submit = answers(_submission_view(bp, service))
    bp.add_undocumented("/<type>", submit, endpoint="submit", methods=["POST"], **EXACTLY)
    for add in (_add_summary, _add_items, _add_events, _add_cancelling):
        add(bp, service, answers)
    return bp, submit


def _submission_view(bp: JobsBlueprint, service: JobService) -> View:
    headers = {**BATCH_LOCATION, **NO_STORE}

    @bp.answer(202, AsyncJobBatchAcceptedSchema, example=ACCEPTED, headers=headers | RETRY_AFTER)
    @bp.answer(
        200,
        AsyncJobBatchAcceptedSchema,
        description="The batch of this Idempotency-Key has ended",
        example={**ACCEPTED, "status": "COMPLETED"},
        headers=headers,
    )
    @bp.problems(*OF_SUBMISSIONS)
    def submit(type: str) -> Response:
        handler, settings = service.registry.get(type), service.settings
        key = idempotency_key_of(request)
        if key is None and settings.batch_require_idempotency_key:
            raise InvalidIdempotencyKey("a batch requires an Idempotency-Key", missing=True)
        items = items_of(request, handler, settings)
        batch = service.submit_batch(BatchRequest(handler, items, key, service.owner_of_request() or "")).batch
        urls = _urls(batch)
        headers = {"Location": urls.status, **replies.retry_after(batch, settings.retry_after_seconds)}
        return reply(replies.accepted_body(batch, urls), 200 if batch.status.is_terminal else 202, headers)

    view: View = submit
    return view


def _add_summary(bp: JobsBlueprint, service: JobService, answers: Callable[[View], View]) -> None:
    @bp.answer(200, AsyncJobBatchSchema, example=SUMMARY, headers={**RETRY_AFTER, **NO_STORE})
    @bp.problems("batch-not-found")
    def get_batch(batch_id: str) -> Response:
        """Ask how far a batch is.

        `status` is PENDING while every item is, COMPLETED when every item has ended, and PROCESSING in between;
        COMPLETED does not mean that every item succeeded. The counts are of one moment and add up to `total`.
        While the batch is active `Retry-After` says when to ask again.
        """
        return _summary(service, _found(service, batch_id))

    view = but_for_types(service.registry, answers(get_batch))
    bp.route("/<batch_id>", endpoint="get_batch", methods=["GET"], **EXACTLY)(view)


def _add_items(bp: JobsBlueprint, service: JobService, answers: Callable[[View], View]) -> None:
    @bp.route("/<batch_id>/items", methods=["GET"], **EXACTLY)
    @answers
    @bp.answer(200, AsyncJobBatchPageSchema, example=PAGE, headers=NO_STORE)
    @bp.asks(*PAGES.parameters)
    @bp.problems("batch-not-found", "invalid-parameters")
    def get_items(batch_id: str) -> Response:
        """Read the items of a batch, page by page.

        In the order in which they were submitted, each with its state, its result and why it failed. `nextAfter`
        is the `after` of the next page, and null on the last.
        """
        known = batch_id_of(batch_id)
        try:
            after, limit = PAGES.asked(request)
        except ProblemRaised:
            _found(service, batch_id)  # an unknown batch is 404 whatever is asked of it
            raise
        items = service.batch_items(known, after, limit + 1, service.reader_of_request())
        if items is None:
            raise ProblemRaised(BATCH_NOT_FOUND)
        return stored_reply(replies.page_text(known, items[:limit], more=len(items) > limit))


def _add_events(bp: JobsBlueprint, service: JobService, answers: Callable[[View], View]) -> None:
    @bp.route("/<batch_id>/events", methods=["GET"], **EXACTLY)
    @answers
    @bp.answer(
        200,
        {"type": "string"},
        content_type="text/event-stream",
        description="The stream",
        example=EVENTS,
        headers=STREAM_HEADERS,
    )
    @bp.answer(204, description="The client has seen the end", headers=STREAM_HEADERS)
    @bp.asks(LAST_EVENT_ID)
    @bp.problems("batch-not-found", "too-many-subscribers", "too-many-streams")
    def get_batch_events(batch_id: str) -> Response:
        """Follow a batch as server-sent events.

        `progress` with the counts, at once and after each change, then `complete`; then the server closes. The id
        of an event is the sum of the items' revisions: a reconnect whose `Last-Event-ID` is the id of the last
        event is answered 204, which stops an `EventSource`; any other gets the counts again.
        """
        return batch_events(service, _found(service, batch_id))


def _add_cancelling(bp: JobsBlueprint, service: JobService, answers: Callable[[View], View]) -> None:
    @bp.answer(202, AsyncJobBatchSchema, example=SUMMARY, headers={**RETRY_AFTER, **NO_STORE})
    @bp.answer(
        409,
        AsyncJobBatchConflictSchema,
        content_type=MEDIA_TYPE,
        description="The batch ended already",
        example=CONFLICT,
        headers=NO_STORE,
    )
    @bp.problems("batch-not-found")
    def cancel_batch(batch_id: str) -> Response:
        """Cancel what is active of a batch.

        Every active item is CANCELLED at once, as a job is; what has ended stays as it is.
        """
        result, batch = service.cancel_batch(batch_id_of(batch_id), service.reader_of_request())
        if batch is None:
            raise ProblemRaised(BATCH_NOT_FOUND)
        if result is CancelResult.CANCELLED:
            return _summary(service, batch, 202)
        members = {"batchId": str(batch.batch_id), "batchStatus": batch.status}
        raise ProblemRaised(Problem("already-terminal", "Every item has ended already.", members=members))

    view = but_for_types(service.registry, answers(cancel_batch))
    bp.route("/<batch_id>", endpoint="cancel_batch", methods=["DELETE"], **EXACTLY)(view)


def _found(service: JobService, text: str) -> BatchView:
    batch = service.find_batch(batch_id_of(text), service.reader_of_request())
    if batch is None:
        raise ProblemRaised(BATCH_NOT_FOUND)
    return batch


def _summary(service: JobService, batch: BatchView, code: int = 200) -> Response:
    headers = replies.retry_after(batch, service.settings.retry_after_seconds)
    return reply(replies.summary_body(batch, _urls(batch)), code, headers)


def _urls(batch: BatchView) -> BatchUrls:
    urls = urls_of_batch(batch.batch_id)
    assert urls is not None, "the routes are registered, or this would not answer"
    return urls
