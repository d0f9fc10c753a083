"""Reading a request: its key, its directives and its payload."""

from __future__ import annotations

from uuid import UUID

from flask import Request
from werkzeug.exceptions import HTTPException

from flask_async_jobs.api.problems import Problem, ProblemRaised
from flask_async_jobs.api.service import JobService
from flask_async_jobs.errors import PayloadTooLarge
from flask_async_jobs.registry import Handler
from flask_async_jobs.states import JobView, uuid_form
from flask_async_jobs.submission import Payload, accept_payload, read_idempotency_key


def job_id_of(text: str) -> UUID:
    """Return the id that a path names.

    Raises:
        ProblemRaised: It is not the 36-character form, so there is no such job.
    """
    if not uuid_form.fullmatch(text):
        raise ProblemRaised(JOB_NOT_FOUND)
    return UUID(text)


JOB_NOT_FOUND = Problem("job-not-found", "There is no such job.")


def found(service: JobService, text: str) -> JobView:
    """Return the job that a path names.

    Raises:
        ProblemRaised: There is none that the current request may see.
    """
    job = service.find(job_id_of(text), service.reader_of_request())
    if job is None:
        raise ProblemRaised(JOB_NOT_FOUND)
    return job


def idempotency_key_of(request: Request) -> str | None:
    """Return the `Idempotency-Key` of a request, or None if it has none.

    Raises:
        InvalidIdempotencyKey: The key is not 1 to 255 visible ASCII characters.
    """
    text = request.headers.get("Idempotency-Key")
    return None if text is None else read_idempotency_key(text.strip(" \t"))


def wants_new_run(request: Request) -> bool:
    """Return whether `Cache-Control` holds `no-cache` (RFC 9111 section 5.2.1.4)."""
    directives = request.headers.get("Cache-Control", "").split(",")
    return any(directive.partition("=")[0].strip().lower() == "no-cache" for directive in directives)


def payload_of(request: Request, handler: Handler, limit: int) -> Payload:
    """Read and check the payload of a submission.

    Raises:
        ProblemRaised: There is a body and it is not declared as JSON, or not UTF-8.
        InvalidPayload: See `accept_payload`.
        RequestEntityTooLarge: The body is longer than `limit`; no more than that is read.
    """
    return accept_payload(handler, text_of(request, limit) or None, limit)


def text_of(request: Request, limit: int) -> str:
    """Return the JSON text of a request, without white space around it; `''` for no body.

    Raises:
        ProblemRaised: There is a body and it is not declared as JSON, or not UTF-8.
        PayloadTooLarge: The body is longer than `limit` bytes; no more than that is read.
    """
    most = request.max_content_length
    # A body without a length is cut at the maximum, without a word: one byte more tells.
    request.max_content_length = limit + 1 if most is None else min(limit + 1, most)
    body = _body_of(request)
    if len(body) > limit:
        raise PayloadTooLarge(f"the body is longer than {limit} bytes")
    body = body.strip(b" \t\r\n")
    if not body:
        return ""
    if not request.is_json or request.headers.get("Content-Encoding", "identity").lower() != "identity":
        detail = "Send the payload as application/json, in UTF-8 and without a content coding."
        raise ProblemRaised(Problem("unsupported-media-type", detail))
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise ProblemRaised(Problem("malformed-request", "The body is not UTF-8.")) from None


def _body_of(request: Request) -> bytes:
    try:
        return request.get_data(cache=False)
    except HTTPException:
        raise
    except Exception as error:  # what a server raises for a chunk without a size, or a client that went away
        raise ProblemRaised(Problem("malformed-request", "The body cannot be read.")) from error
