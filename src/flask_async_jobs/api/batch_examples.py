"""Examples of the bodies of batches, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from flask_async_jobs.api.examples import problem_example

_ID: Final = "9b6c1b52-7d3f-4b43-9f0d-5d0a8f6e0c77"
_URL: Final = f"https://api.example/batches/{_ID}"
ACCEPTED: Final = {
    "batchId": _ID,
    "status": "PENDING",
    "submittedAt": "2026-06-03T22:00:00Z",
    "total": 3,
    "statusUrl": _URL,
    "itemsUrl": f"{_URL}/items",
    "eventsUrl": f"{_URL}/events",
}
SUMMARY: Final = {
    "batchId": _ID,
    "jobType": "review",
    "status": "COMPLETED",
    "submittedAt": "2026-06-03T22:00:00Z",
    "completedAt": "2026-06-03T22:00:09Z",
    "total": 3,
    "pending": 0,
    "processing": 0,
    "completed": 2,
    "failed": 1,
    "cancelled": 0,
    "itemsUrl": f"{_URL}/items",
}
_instants: Final = {
    "createdAt": "2026-06-03T22:00:00Z",
    "startedAt": "2026-06-03T22:00:01Z",
    "lastUpdatedAt": "2026-06-03T22:00:07Z",
    "completedAt": "2026-06-03T22:00:07Z",
}
_failed: Final[dict[str, Any]] = {
    "itemId": "mouse-002",
    "jobId": "3f0b8a54-6f0e-4d0c-9a57-0a8f4f6f2c11",
    "status": "FAILED",
    **_instants,
    "error": {"title": "The listing cannot be read", "detail": None, "code": "unreadable"},
    "result": None,
}
PAGE: Final = {
    "batchId": _ID,
    "items": [
        {
            **_failed,
            "itemId": "keyboard-001",
            "jobId": "c0b7a4a7-32a7-4c3d-8f6b-5a8a3b1d9e55",
            "status": "COMPLETED",
            "error": None,
            "result": {"score": 87},
        },
        _failed,
    ],
    "nextAfter": 2,
}
CONFLICT: Final = problem_example("already-terminal", batchId=_ID, batchStatus="COMPLETED")
EVENTS: Final = (
    f': ok\nretry: 2000\nevent: progress\nid: 4\ndata: {{"batchId": "{_ID}", "status": "PROCESSING", "total": 3, '
    f'"pending": 2, "processing": 1, "completed": 0, "failed": 0, "cancelled": 0}}\n\n'
    f'event: complete\nid: 9\ndata: {{"batchId": "{_ID}", "status": "COMPLETED", "total": 3, "pending": 0, '
    f'"processing": 0, "completed": 2, "failed": 1, "cancelled": 0, "completedAt": "2026-06-03T22:00:09Z"}}\n\n'
)
