"""The event streams of jobs and batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic

from flask import Response, request

from flask_async_jobs.api import sse
from flask_async_jobs.api.problems import Problem, ProblemRaised
from flask_async_jobs.api.results import locating
from flask_async_jobs.api.service import JobService
from flask_async_jobs.config import Settings
from flask_async_jobs.events import JobEvent, follow
from flask_async_jobs.states import BatchView, JobView
from flask_async_jobs.subscriptions import S, Subscription
from flask_async_jobs.watcher import TooManyStreams, TooManySubscribers

HEADERS = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}


@dataclass(frozen=True)
class _Feed(Generic[S]):
    """What a stream is made of: how to take a place, how to read the state again, and its block."""

    subscribe: Callable[[], Subscription[S]]
    find: Callable[[], S | None]
    encode: Callable[[S, int | None], str]


def events(service: JobService, job: JobView) -> Response:
    """Return the stream of a job: a snapshot, then each change until the end; 204 to one who has seen the end.

    Raises:
        ProblemRaised: As many streams follow the job, or are open in this process, as may.
    """
    locate = locating(service)
    feed = _Feed(
        lambda: service.subscribe(job.job_id),
        lambda: service.find(job.job_id, service.reader_of_request()),
        lambda state, retry: sse.encode_event(JobEvent.of(state), locate(state).result_url, retry=retry),
    )
    return _stream(service, job, feed)


def batch_events(service: JobService, batch: BatchView) -> Response:
    """Return the stream of a batch; see `events`."""
    feed = _Feed(
        lambda: service.subscribe_to_batch(batch.batch_id),
        lambda: service.find_batch(batch.batch_id, service.reader_of_request()),
        lambda state, retry: sse.encode_batch(state, retry=retry),
    )
    return _stream(service, batch, feed)


def _stream(service: JobService, known: S, feed: _Feed[S]) -> Response:
    if known.status.is_terminal and request.headers.get("Last-Event-ID", "").strip(" \t") == str(known.revision):
        return _response(None, 204)
    if request.method == "HEAD":
        return _response("", 200)
    subscription = _subscribed(service, feed)
    try:
        current = feed.find() or known
    except BaseException:
        subscription.close()
        raise
    response = _response(_blocks(service.settings, subscription, current, feed), 200)
    response.call_on_close(subscription.close)
    return response


def _subscribed(service: JobService, feed: _Feed[S]) -> Subscription[S]:
    later = {"Retry-After": str(service.settings.retry_after_seconds)}
    try:
        return feed.subscribe()
    except TooManySubscribers:
        raise ProblemRaised(Problem("too-many-subscribers", headers=later)) from None
    except TooManyStreams:
        raise ProblemRaised(Problem("too-many-streams", headers=later)) from None


def _blocks(settings: Settings, subscription: Subscription[S], known: S, feed: _Feed[S]) -> Iterator[str]:
    """Give the bytes of a stream. The first comment lets the headers go out at once."""
    deadline = time.monotonic() + settings.retention.total_seconds()
    retry: int | None = sse.RETRY_MS
    try:
        yield sse.COMMENT
        for state in follow(subscription, known, deadline, settings.sse_heartbeat.total_seconds()):
            if state is None:
                yield sse.COMMENT
                continue
            yield feed.encode(state, retry)
            retry = None
    finally:
        subscription.close()


def _response(body: Iterator[str] | str | None, status: int) -> Response:
    response = Response(body, status, mimetype="text/event-stream", headers=HEADERS)
    response.automatically_set_content_length = False
    return response
