"""The headers of requests and answers, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any, Final


def _answered(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {name: {"description": description, "schema": {"type": "string", **schema}}}


def _asked(name: str, description: str, where: str = "header", **schema: Any) -> dict[str, Any]:
    schema = {"type": "string", **schema}
    return {"in": where, "name": name, "description": description, "required": False, "schema": schema}


NO_STORE: Final = _answered("Cache-Control", "`no-store`")
RETRY_AFTER: Final = _answered(
    "Retry-After", "Seconds after which to ask again, while the job is active.", type="integer", minimum=1
)
EXPIRES: Final = _answered("Expires", "Until when the job can be read (an HTTP date).")
LOCATION: Final = _answered("Location", "The status URL.", format="uri") | _answered(
    "Operation-Location", "The operation URL.", format="uri"
)
RESULT_LOCATION: Final = _answered("Location", "The URL of the result.", format="uri")
BATCH_LOCATION: Final = _answered("Location", "The status URL.", format="uri")
ALLOW: Final = _answered("Allow", "The methods of this path.")
ETAG: Final = _answered("ETag", "The revision of the job.")
APPLIED: Final = _answered("Preference-Applied", "`wait=N`, when the answer was held.")
STREAM_HEADERS: Final = _answered("Cache-Control", "`no-store, no-transform`") | _answered(
    "X-Accel-Buffering", "`no`: a proxy passes each event on at once."
)

PREFER: Final = _asked("Prefer", "`wait=N`: hold the answer up to N seconds (RFC 7240).")
IF_NONE_MATCH: Final = _asked("If-None-Match", "The `ETag` of the state that the client knows.")
LAST_EVENT_ID: Final = _asked("Last-Event-ID", "The id of the last event that the client has seen.")
LAST_EVENT_ID_QUERY: Final = _asked(
    "lastEventId", "As `Last-Event-ID`, which wins; `0` asks for the whole log.", "query", pattern="^[0-9]{1,10}$"
)
AFTER: Final = _asked(
    "after",
    "Where the page begins: `nextAfter` of the one before.",
    "query",
    type="integer",
    minimum=0,
    maximum=2**31 - 1,
    default=0,
)
_key: Final[dict[str, Any]] = {"minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
BATCH_SUBMISSION_HEADERS: Final = [
    _asked(
        "Idempotency-Key",
        "1 to 255 visible ASCII characters. The same key and the same items in the same order give the same batch.",
        **_key,
    )
]
SUBMISSION_HEADERS: Final = [
    _asked(
        "Idempotency-Key", "1 to 255 visible ASCII characters. The same key and work give the same job.", **_key
    ),
    _asked("Cache-Control", "`no-cache`: run, even if the work completed within the freshness window."),
    PREFER,
]


def limit_of(default: int, most: int) -> dict[str, Any]:
    """Return the parameter that says how many the page may have."""
    description = "How many the page may have."
    return _asked("limit", description, "query", type="integer", minimum=1, maximum=most, default=default)
