"""The routes on jobs. A view's docstring is its text in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable

from flask import Response, request

from flask_async_jobs.api import replies
from flask_async_jobs.api.answers import accepted, awaited, state_of, status
from flask_async_jobs.api.boundary import answering, but_for_types, reply, stored_reply
from flask_async_jobs.api.describe import EXACTLY, OF_SUBMISSIONS, JobsBlueprint, View
from flask_async_jobs.api.examples import ACCEPTED, CANCELLED, CONFLICT, EVENTS, OPERATION
from flask_async_jobs.api.headers import (
    APPLIED,
    EXPIRES,
    LAST_EVENT_ID,
    LOCATION,
    NO_STORE,
    RETRY_AFTER,
    STREAM_HEADERS,
)
from flask_async_jobs.api.log_views import add_log
from flask_async_jobs.api.problems import MEDIA_TYPE, Problem, ProblemRaised
from flask_async_jobs.api.requests import (
    JOB_NOT_FOUND,
    found,
    idempotency_key_of,
    job_id_of,
    payload_of,
    wants_new_run,
)
from flask_async_jobs.api.schemas import (
    AsyncJobAcceptedSchema,
    AsyncJobConflictSchema,
    AsyncJobOperationSchema,
    AsyncJobStatusSchema,
)
from flask_async_jobs.api.service import JobService
from flask_async_jobs.api.state_docs import tells_end, tells_state
from flask_async_jobs.api.streams import events
from flask_async_jobs.api.waiting import wait_of
from flask_async_jobs.states import CancelResult, JobStatus
from flask_async_jobs.submission import WorkRequest

NAME = "async_jobs"


def jobs_blueprint(service: JobService) -> tuple[JobsBlueprint, View]:
    """Return the routes on jobs, and the view whose documentation each type's operation is made of."""
    bp = JobsBlueprint(NAME, __name__, description="Asynchronous jobs: submit, follow, cancel.")
    answers = answering(lambda: service.settings.retry_after_seconds)
    submit = answers(_submission_view(bp, service))
    bp.add_undocumented("/<type>", submit, endpoint="submit", methods=["POST"], **EXACTLY)
    for add in (_add_state, _add_events, add_log, _add_result, _add_operation, _add_cancelling):
        add(bp, service, answers)
    return bp, submit


def _submission_view(bp: JobsBlueprint, service: JobService) -> View:
    @bp.answer(
        202, AsyncJobAcceptedSchema, example=ACCEPTED, headers={**LOCATION, **RETRY_AFTER, **APPLIED, **NO_STORE}
    )
    @bp.problems(*OF_SUBMISSIONS, "job-failed")
    def submit(type: str) -> Response:
        handler = service.registry.get(type)
        submission = service.submit(
            WorkRequest(
                handler,
                payload_of(request, handler, service.settings.payload_max_bytes),
                idempotency_key=idempotency_key_of(request),
                owner=service.owner_of_request() or "",
                force=wants_new_run(request),
            )
        )
        seconds = wait_of(request, service.settings.max_wait)
        if seconds:
            return awaited(service, submission, seconds)
        service.hold(submission)
        return accepted(service, submission)

    return tells_end(bp, submit)


def _add_state(bp: JobsBlueprint, service: JobService, answers: Callable[[View], View]) -> None:
    def state(job_id: str) -> Response:
        """Ask for the state of a job.

        `status` is PENDING, PROCESSING, COMPLETED or CANCELLED; a FAILED job is a problem document. While the job
        is active `Retry-After` says when to ask again, and `Expires` until when the job can be read. A type may
        redirect (303) to the result of a COMPLETED job; the body names it as `resultUrl`.
        `Prefer: wait=N` holds the answer until the state has changed from that of `If-None-Match`, or from the
        current one.
        """
        return state_of(service, found(service, job_id))

    documented = answers(tells_state(bp, state))
    bp.route("/<job_id>/status", endpoint="get_status", methods=["GET"], **EXACTLY)(documented)
    served = but_for_types(service.registry, documented)
    bp.route("/<job_id>", endpoint="get_job", methods=["GET"], **EXACTLY)(served)


def _add_events(bp: JobsBlueprint, service: JobService, answers: Callable[[View], View]) -> None:
    @bp.route("/<job_id>/events", methods=["GET"], **EXACTLY)
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
    @bp.problems("job-not-found", "too-many-subscribers", "too-many-streams")
    def get_events(job_id: str) -> Response:
        """Follow a job as server-sent events.

        A snapshot of the state, then each change until the job has ended; then the server closes. The id of an
        event is the revision: a reconnect whose `Last-Event-ID` is the id of the last event is answered 204, which
        stops an `EventSource`; any other gets the snapshot again.
        """
        return events(service, found(service, job_id))


def _add_result(bp: JobsBlueprint, service: JobService, answers: Callable[[View], View]) -> None:
    @bp.route("/<job_id>/result", methods=["GET"], **EXACTLY)
    @answers
    @bp.answer(200, {}, description="The result, a JSON value", example={"eligible": 1234}, headers=NO_STORE)
    @bp.answer(204, description="The job has no result", headers=NO_STORE)
    @bp.problems("job-not-found", "not-completed")
    def get_result(job_id: str) -> Response:
        """Read the small result of a job.

        What its handler returned, exactly as it was stored. Most jobs have none: their results stand in the
        application's own tables.
        """
        job = found(service, job_id)
        if job.status is not JobStatus.COMPLETED:
            members = {"jobId": str(job.job_id), "jobStatus": job.status}
            raise ProblemRaised(Problem("not-completed", f"The job is {job.status}.", members=members))
        return stored_reply(service.result_of(job.job_id))


def _add_operation(bp: JobsBlueprint, service: JobService, answers: Callable[[View], View]) -> None:
    @bp.route("/<job_id>/operation", methods=["GET"], **EXACTLY)
    @answers
    @bp.answer(200, AsyncJobOperationSchema, example=OPERATION, headers={**EXPIRES, **RETRY_AFTER, **NO_STORE})
    @bp.problems("job-not-found")
    def get_operation(job_id: str) -> Response:
        """Ask for the state of a job in the words of stock pollers.

        `status` is NotStarted, Running, Succeeded, Failed or Canceled, and the answer is 200 for each of them.
        """
        job = found(service, job_id)
        return reply(replies.operation_body(job), 200, replies.status_headers(job, service.policy))


def _add_cancelling(bp: JobsBlueprint, service: JobService, answers: Callable[[View], View]) -> None:
    def cancel(job_id: str) -> Response:
        """Cancel a job.

        The job is CANCELLED at once. Its handler is not interrupted; it sees the cancellation, and whatever it
        reports later is refused. `effectStarted` says whether it had begun to have effects.
        """
        result, job = service.cancel(job_id_of(job_id), service.reader_of_request())
        if job is None:
            raise ProblemRaised(JOB_NOT_FOUND)
        if result is CancelResult.CANCELLED:
            return status(service, job, 202)
        members = {"jobId": str(job.job_id), "jobStatus": job.status}
        raise ProblemRaised(Problem("already-terminal", f"The job is {job.status} already.", members=members))

    view = bp.problems("job-not-found")(cancel)
    view = bp.answer(
        409,
        AsyncJobConflictSchema,
        content_type=MEDIA_TYPE,
        description="The job ended already",
        example=CONFLICT,
        headers=NO_STORE,
    )(view)
    headers = {**EXPIRES, **NO_STORE}
    view = answers(bp.answer(202, AsyncJobStatusSchema, example=CANCELLED, headers=headers)(view))
    for rule, endpoint, method in (
        ("/<job_id>", "cancel_job", "DELETE"),
        ("/<job_id>/status", "cancel_job_by_status", "DELETE"),
        ("/<job_id>/cancel", "cancel_job_by_post", "POST"),
    ):
        served = but_for_types(service.registry, view) if rule == "/<job_id>" else view
        bp.route(rule, endpoint=endpoint, methods=[method], **EXACTLY)(served)
