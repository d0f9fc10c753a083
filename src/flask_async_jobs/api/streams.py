"""The event stream of a job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from flask import Response, request

from flask_async_jobs.api import sse
from flask_async_jobs.api.problems import Problem, ProblemRaised
from flask_async_jobs.api.results import locating
from flask_async_jobs.api.service import JobService
from flask_async_jobs.events import follow
from flask_async_jobs.states import JobView
from flask_async_jobs.watcher import Subscription, TooManyStreams, TooManySubscribers

HEADERS = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}


def events(service: JobService, job: JobView) -> Response:
    """Return the stream of a job: a snapshot, then each change until the end; 204 to one who has seen the end.

    Raises:
        ProblemRaised: As many streams follow the job, or are open in this process, as may.
    """
    if job.status.is_terminal and request.headers.get("Last-Event-ID", "").strip() == str(job.revision):
        return _response(None, 204)
    if request.method == "HEAD":
        return _response("", 200)
    subscription = _subscribed(service, job)
    current = service.find(job.job_id, service.reader_of_request()) or job
    response = _response(_blocks(service, subscription, current, locating(service)), 200)
    response.call_on_close(subscription.close)
    return response


def _subscribed(service: JobService, job: JobView) -> Subscription:
    later = {"Retry-After": str(service.settings.retry_after_seconds)}
    try:
        return service.subscribe(job.job_id)
    except TooManySubscribers:
        raise ProblemRaised(Problem("too-many-subscribers", headers=later)) from None
    except TooManyStreams:
        raise ProblemRaised(Problem("too-many-streams", headers=later)) from None


def _blocks(
    service: JobService, subscription: Subscription, job: JobView, locate: Callable[[JobView], JobView]
) -> Iterator[str]:
    """Give the bytes of a stream. The first comment lets the headers go out at once."""
    settings = service.settings
    deadline = time.monotonic() + settings.retention.total_seconds()
    retry: int | None = sse.RETRY_MS
    try:
        yield sse.COMMENT
        for event in follow(subscription, job, deadline, settings.sse_heartbeat.total_seconds()):
            if event is None:
                yield sse.COMMENT
                continue
            yield sse.encode_event(event, locate(event.job).result_url, retry=retry)
            retry = None
    finally:
        subscription.close()


def _response(body: Iterator[str] | str | None, status: int) -> Response:
    response = Response(body, status, mimetype="text/event-stream", headers=HEADERS)
    response.automatically_set_content_length = False
    return response
