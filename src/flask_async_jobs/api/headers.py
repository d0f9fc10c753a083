"""The headers of requests and answers, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any, Final


def _answered(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {name: {"description": description, "schema": {"type": "string", **schema}}}


def _asked(name: str, description: str, **schema: Any) -> dict[str, Any]:
    schema = {"type": "string", **schema}
    return {"in": "header", "name": name, "description": description, "required": False, "schema": schema}


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
AFTER: Final = {
    "in": "query",
    "name": "after",
    "description": "Where the page begins: `nextAfter` of the one before.",
    "required": False,
    "schema": {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "default": 0},
}
LIMIT: Final = {
    "in": "query",
    "name": "limit",
    "description": "How many items the page may have.",
    "required": False,
    "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 25},
}
_key: Final = {"minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
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
