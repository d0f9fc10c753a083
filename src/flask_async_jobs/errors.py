"""Everything the library raises. The docstring of an error says what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import timedelta


class AsyncJobsError(Exception):
    """Base of every error of the library."""


class ConfigurationError(AsyncJobsError, ValueError):
    """A setting or a registration makes no sense; the message names it, its value and a right one."""


class UnknownType(AsyncJobsError, LookupError):
    """No handler is registered for this type, or the name is malformed (`malformed` is then true)."""

    def __init__(self, type: str, *, malformed: bool = False) -> None:
        self.type = type
        self.malformed = malformed
        shown = type if len(type) <= 80 else type[:80] + "…"
        super().__init__(
            f"{shown!r} is not a type name: use 1 to 64 letters, digits, '.', '_' or '-', and no UUID"
            if malformed
            else f"no handler is registered for the type {shown!r}"
        )


class InvalidPayload(AsyncJobsError, ValueError):
    """The payload does not fit the type, or is not JSON at all (`malformed` is then true).

    `errors` has the messages by field when the type's schema refused it.
    """

    def __init__(self, message: str, errors: dict[str, Any] | None = None, *, malformed: bool = False) -> None:
        self.errors = errors
        self.malformed = malformed
        super().__init__(message)


class PayloadTooLarge(InvalidPayload):
    """The payload is longer than `ASYNC_JOBS_PAYLOAD_MAX_BYTES`."""


class UnwantedPayload(InvalidPayload):
    """The type has no payload schema, and takes none."""


class InvalidIdempotencyKey(AsyncJobsError, ValueError):
    """The key is not 1 to 255 visible ASCII characters, or is missing where the type requires one."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        self.missing = missing
        super().__init__(message)


class IdempotencyKeyConflict(AsyncJobsError):
    """The key was already used for another type or another payload; send a new key."""


class TooManyActive(AsyncJobsError):
    """A cap on active jobs is reached; try again when some have ended."""


class Saturated(AsyncJobsError):
    """Every slot is taken and `BACKPRESSURE` is `reject`; nothing was stored, try again later."""


class StorageUnavailable(AsyncJobsError):
    """The database could not be asked. If a commit was under way, its outcome is unknown."""


class AttemptLost(AsyncJobsError):
    """The attempt is no longer the running one: its claim lapsed, or another attempt took over."""


class JobCancelled(AsyncJobsError):
    """The job was cancelled while its handler ran."""


class JobFailed(AsyncJobsError):
    """Raised by a handler: the job failed, and this is what the client is shown.

    Args:
        title: At most 256 characters; a blank one becomes `Job failed`.
        detail: At most 2,000 characters.
        code: A stable code for programs, at most 64 characters; `job-failed` if absent.
    """

    def __init__(self, title: str, detail: str | None = None, code: str | None = None) -> None:
        self.title = title
        self.detail = detail
        self.code = code
        super().__init__(title, detail, code)


class RetryLater(AsyncJobsError):
    """Raised by a handler: run this job again after `delay`. Does not count against `max_attempts`."""

    def __init__(self, delay: timedelta) -> None:
        self.delay = delay
        super().__init__(delay)


class OwnerRequired(AsyncJobsError):
    """The request has no owner and `ASYNC_JOBS_REQUIRE_OWNER` is on."""
