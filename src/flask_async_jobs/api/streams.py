"""The event streams of jobs and batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic

from flask import Response, request

from flask_async_jobs.api import sse
from flask_async_jobs.api.problems import Problem, ProblemRaised
from flask_async_jobs.api.results import locating
from flask_async_jobs.api.service import JobService
from flask_async_jobs.config import Settings
from flask_async_jobs.errors import StorageUnavailable
from flask_async_jobs.events import JobEvent, follow
from flask_async_jobs.states import BatchView, JobView
from flask_async_jobs.subscriptions import S, Subscription
from flask_async_jobs.watcher import TooManyStreams, TooManySubscribers

HEADERS = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}


@dataclass(frozen=True)
class Feed(Generic[S]):
    """What a stream is made of: how to take a place, how to read the state again, and its blocks."""

    subscribe: Callable[[], Subscription[S]]
    find: Callable[[], S | None]
    encode: Callable[[S, int | None], Iterable[str]]


def events(service: JobService, job: JobView) -> Response:
    """Return the stream of a job: a snapshot, then each change until the end; 204 to one who has seen the end.

    Raises:
        ProblemRaised: As many streams follow the job, or are open in this process, as may.
    """
    locate = locating(service)
    feed = Feed(
        lambda: service.subscribe(job.job_id),
        lambda: service.find(job.job_id, service.reader_of_request()),
        lambda state, retry: [sse.encode_event(JobEvent.of(state), locate(state).result_url, retry=retry)],
    )
    return _stream(service, job, feed)


def batch_events(service: JobService, batch: BatchView) -> Response:
    """Return the stream of a batch; see `events`."""
    feed = Feed(
        lambda: service.subscribe_to_batch(batch.batch_id),
        lambda: service.find_batch(batch.batch_id, service.reader_of_request()),
        lambda state, retry: [sse.encode_batch(state, retry=retry)],
    )
    return _stream(service, batch, feed)


def _stream(service: JobService, known: S, feed: Feed[S]) -> Response:
    if known.status.is_terminal and request.headers.get("Last-Event-ID", "").strip(" \t") == str(known.revision):
        return stream_response(None, 204)
    if request.method == "HEAD":
        return stream_response("", 200)
    return open_stream(service, known, feed)


def open_stream(service: JobService, known: S, feed: Feed[S]) -> Response:
    """Take a place and return the stream; `known` is the state if it can no longer be read.

    Raises:
        ProblemRaised: As many streams follow the same, or are open in this process, as may.
    """
    subscription = _subscribed(service, feed)
    try:
        current = feed.find() or known
    except BaseException:
        subscription.close()
        raise
    response = stream_response(_blocks(service.settings, subscription, current, feed), 200)
    response.call_on_close(subscription.close)
    return response


def _subscribed(service: JobService, feed: Feed[S]) -> Subscription[S]:
    later = {"Retry-After": str(service.settings.retry_after_seconds)}
    try:
        return feed.subscribe()
    except TooManySubscribers:
        raise ProblemRaised(Problem("too-many-subscribers", headers=later)) from None
    except TooManyStreams:
        raise ProblemRaised(Problem("too-many-streams", headers=later)) from None


def _blocks(settings: Settings, subscription: Subscription[S], known: S, feed: Feed[S]) -> Iterator[str]:
    """Give the bytes of a stream. The first comment lets the headers go out at once."""
    deadline = time.monotonic() + settings.retention.total_seconds()
    retry: int | None = sse.RETRY_MS
    try:
        yield sse.COMMENT
        for state in follow(subscription, known, deadline, settings.sse_heartbeat.total_seconds()):
            if state is None:
                yield sse.COMMENT
                continue
            yield from feed.encode(state, retry)
            retry = None
    except StorageUnavailable:
        return  # what a block needs cannot be read, and no end is made up; the client comes back
    finally:
        subscription.close()


def stream_response(body: Iterator[str] | str | None, status: int) -> Response:
    """Return a stream, or the answer without a body that stands for one."""
    response = Response(body, status, mimetype="text/event-stream", headers=HEADERS)
    response.automatically_set_content_length = False
    return response
