"""Problem documents (RFC 9457): what can go wrong, and how a client is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from werkzeug.exceptions import HTTPException
from werkzeug.http import HTTP_STATUS_CODES

from flask_async_jobs.errors import (
    AsyncJobsError,
    IdempotencyKeyConflict,
    InvalidIdempotencyKey,
    InvalidPayload,
    OwnerRequired,
    PayloadTooLarge,
    Saturated,
    StorageUnavailable,
    TooManyActive,
    UnknownType,
)

MEDIA_TYPE: Final = "application/problem+json"
URN: Final = "urn:flask-async-jobs:problem:"

TITLES: Final[Mapping[str, tuple[int, str]]] = {
    "unknown-type": (400, "Unknown type"),
    "invalid-type": (400, "Invalid type"),
    "invalid-payload": (422, "Invalid payload"),
    "invalid-parameters": (422, "Invalid parameters"),
    "malformed-request": (400, "Malformed request"),
    "unsupported-media-type": (415, "Unsupported media type"),
    "payload-too-large": (413, "Payload too large"),
    "invalid-idempotency-key": (400, "Invalid Idempotency-Key"),
    "idempotency-key-required": (400, "Idempotency-Key required"),
    "idempotency-key-conflict": (422, "Idempotency-Key conflict"),
    "job-not-found": (404, "Job not found"),
    "batch-not-found": (404, "Batch not found"),
    "not-found": (404, "Not found"),
    "method-not-allowed": (405, "Method not allowed"),
    "already-terminal": (409, "Already ended"),
    "not-completed": (409, "Job not completed"),
    "job-failed": (422, "Job failed"),
    "too-many-active": (429, "Too many active jobs"),
    "saturated": (429, "Every slot is taken"),
    "too-many-subscribers": (429, "Too many streams of this job or batch"),
    "too-many-streams": (503, "Too many streams"),
    "storage-unavailable": (503, "Storage unavailable"),
    "owner-required": (401, "Owner required"),
    "internal-error": (500, "Internal error"),
}
"""The problems by slug: status and title. `docs/problems.md` explains each."""

_by_status: Final = {
    400: "malformed-request",
    401: "owner-required",
    404: "not-found",
    405: "method-not-allowed",
    413: "payload-too-large",
    415: "unsupported-media-type",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem document. `members` are its extension members, `headers` go beside it."""

    slug: str
    detail: str | None = None
    status: int = 0
    title: str = ""
    members: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def code(self) -> int:
        """The HTTP status."""
        return self.status or TITLES[self.slug][0]

    def document(self, instance: str) -> dict[str, Any]:
        """Return the members in the order of RFC 9457 section 3.1, the extension members last."""
        known = {
            "type": URN + self.slug if self.slug else "about:blank",
            "title": self.title or TITLES[self.slug][1],
            "status": self.code,
            "detail": self.detail,
            "instance": instance,
        }
        return {name: value for name, value in known.items() if value is not None} | dict(self.members)


class ProblemRaised(Exception):
    """Carries a problem from where a view notices it to where it is answered."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.slug)


def problem_of(error: AsyncJobsError, retry_after: int) -> Problem:
    """Return how a client is told of an error of the library.

    Args:
        error: What was raised.
        retry_after: The seconds for `Retry-After`, which every 429 and 503 carries.
    """
    later = {"Retry-After": str(retry_after)}
    match error:
        case UnknownType(malformed=True):
            return Problem("invalid-type", _sentence(error))
        case UnknownType():
            return Problem("unknown-type", _sentence(error))
        case PayloadTooLarge():
            return Problem("payload-too-large", _sentence(error))
        case InvalidPayload(malformed=True):
            return Problem("malformed-request", _sentence(error))
        case InvalidPayload(errors=None):
            return Problem("invalid-payload", _sentence(error), status=400)
        case InvalidPayload(errors=errors):
            return Problem("invalid-payload", _sentence(error), members={"errors": _plain(errors)})
        case InvalidIdempotencyKey(missing=True):
            return Problem("idempotency-key-required", _sentence(error))
        case InvalidIdempotencyKey():
            return Problem("invalid-idempotency-key", _sentence(error))
        case IdempotencyKeyConflict():
            return Problem("idempotency-key-conflict", _sentence(error))
        case TooManyActive():
            return Problem("too-many-active", _sentence(error), headers=later)
        case Saturated():
            return Problem("saturated", _sentence(error), headers=later)
        case StorageUnavailable():
            return Problem("storage-unavailable", "The job store does not answer; try again later.", headers=later)
        case OwnerRequired():
            return Problem("owner-required", _sentence(error))
        case _:
            return Problem("internal-error", "The request could not be answered.")


def problem_of_http(error: HTTPException, retry_after: int) -> Problem:
    """Return the problem for an HTTP error that the framework or the application raised.

    Args:
        error: What was raised; a response that it carries is only asked for its status.
        retry_after: The seconds for `Retry-After`, which every 429 and 503 carries.
    """
    status = error.response.status_code if error.response is not None else error.code or 500
    headers = {"Retry-After": str(retry_after)} if status in (429, 503) else {}
    headers |= {
        name: value for name, value in error.get_headers() if name.lower() not in ("content-type", "content-length")
    }
    slug = _by_status.get(status, "internal-error" if status == 500 else "")
    title = "" if slug else HTTP_STATUS_CODES.get(status, "Error")
    detail = error.description if isinstance(error.description, str) else None
    return Problem(slug, detail, status, title, headers=headers)


def _plain(messages: Any) -> Any:
    """Return messages of a schema as JSON: a validator may put anything into them."""
    if isinstance(messages, Mapping):
        return {str(key): _plain(each) for key, each in messages.items()}
    if isinstance(messages, list | tuple | set):
        return [_plain(each) for each in messages]
    return messages if isinstance(messages, bool | int) else str(messages)


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."
