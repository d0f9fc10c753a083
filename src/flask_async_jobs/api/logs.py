"""The log of a job: as a stream that can be resumed, and in pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from flask import Response, request

from flask_async_jobs.api import replies, sse
from flask_async_jobs.api.answers import urls_for
from flask_async_jobs.api.boundary import reply
from flask_async_jobs.api.pages import Pages
from flask_async_jobs.api.results import locating
from flask_async_jobs.api.service import JobService
from flask_async_jobs.api.streams import Feed, open_stream, stream_response
from flask_async_jobs.api.urls import JobUrls
from flask_async_jobs.records import LogEntry
from flask_async_jobs.states import JobStatus, JobView

PAGES: Final = Pages(default=100, longest=1_000)
LAST_RETRY_MS: Final = 86_400_000
"""What keeps an `EventSource` from coming back soon: everything was told."""

_position: Final = re.compile("[0-9]{1,10}")


def log(service: JobService, job: JobView) -> Response:
    """Return the log of a job: the stream to one who accepts it, to anybody else a page.

    Raises:
        ProblemRaised: The parameters of a page make no sense, or there are as many streams as may be.
    """
    if any(kind.lower().startswith("text/event-stream") and q > 0 for kind, q in request.accept_mimetypes):
        return _stream(service, job)
    return _page(service, job)


def _page(service: JobService, job: JobView) -> Response:
    after, limit = PAGES.asked(request)
    entries = service.log_entries(job.job_id, after, limit)
    last = entries[-1].number if entries else min(after, job.log_lines)
    ended = job.status.is_terminal and last >= job.log_lines
    lines = [{"id": entry.number, **replies.log_line(entry)} for entry in entries]
    return reply({"lines": lines, "nextAfter": None if ended else last})


def _stream(service: JobService, job: JobView) -> Response:
    """Return the stream; what is wrong with it is told in this order: 400 a bad position, 429 or 503 no place."""
    known = _known()
    if known and not (_position.fullmatch(known) and int(known) <= job.log_lines):
        return _refusal()
    if request.method == "HEAD":
        return stream_response("", 200)
    feed = Feed(
        lambda: service.subscribe(job.job_id),
        lambda: service.find(job.job_id, service.reader_of_request()),
        _Lines(service, int(known) if known else None, locating(service), urls_for(job)),
    )
    return open_stream(service, job, feed)


def _known() -> str:
    """Return which line the client has seen last; empty: it wants only what is written from now on."""
    header, query = request.headers.get("Last-Event-ID", ""), request.args.get("lastEventId", "")
    return header.strip(" \t") or query.strip(" \t")


def _refusal() -> Response:
    response = Response(status=400, headers={"Cache-Control": "no-store"})
    del response.headers["Content-Type"]
    return response


class _Lines:
    """Gives the blocks of one stream: each line after a position, then how the job ended.

    Costs no query while nothing is logged: the shared look of the process tells how many lines there are, and a
    stream reads those that it has not sent, by their numbers and in pages.
    """

    def __init__(
        self, service: JobService, known: int | None, locate: Callable[[JobView], JobView], urls: JobUrls
    ) -> None:
        self._service = service
        self._known = known
        self._locate = locate
        self._urls = urls

    def __call__(self, job: JobView, retry: int | None) -> Iterator[str]:
        """Give the blocks of what this state has more than the one before."""
        position = job.log_lines if self._known is None else self._known
        for entry in self._entries(job, position):
            yield sse.encode("progress", replies.log_line(entry), id=entry.number)
        self._known = max(position, job.log_lines)
        if job.status.is_terminal:
            yield sse.encode("result", self._result(job), retry=LAST_RETRY_MS)

    def _entries(self, job: JobView, position: int) -> Iterator[LogEntry]:
        """Give the lines after `position` that the job has in this state, as far as they are there."""
        while position < job.log_lines:
            most = min(PAGES.longest, job.log_lines - position)
            entries = self._service.log_entries(job.job_id, position, most)
            yield from entries
            if not entries:
                return
            position = entries[-1].number

    def _result(self, job: JobView) -> dict[str, object]:
        if job.status is JobStatus.FAILED:
            return replies.failure(job, self._urls).document(self._urls.status)
        return replies.status_body(self._locate(job))
