"""Examples of the bodies, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Final

from flask_async_jobs.api.problems import TITLES, URN

_ID: Final = "3f0b8a54-6f0e-4d0c-9a57-0a8f4f6f2c11"
_URL: Final = f"https://api.example/jobs/{_ID}"
_STATE: Final = {
    "createdAt": "2026-06-03T22:00:00Z",
    "lastUpdatedAt": "2026-06-03T22:00:07Z",
    "percentComplete": 40,
    "attempt": 1,
    "effectStarted": False,
    "startedAt": "2026-06-03T22:00:01Z",
}
ACCEPTED: Final = {
    "jobId": _ID,
    "status": "PENDING",
    "disposition": "created",
    "statusUrl": f"{_URL}/status",
    "eventsUrl": f"{_URL}/events",
    "logUrl": f"{_URL}/log",
    "operationUrl": f"{_URL}/operation",
    "cancelUrl": _URL,
}
STATUS: Final = {"jobId": _ID, "jobType": "accounts", "status": "PROCESSING", **_STATE}
CANCELLED: Final = {**STATUS, "status": "CANCELLED", "completedAt": "2026-06-03T22:00:07Z"}
COMPLETED: Final = {
    **CANCELLED,
    "status": "COMPLETED",
    "percentComplete": 100,
    "resultUrl": "https://api.example/listings/17",
}
OPERATION: Final = {
    "id": _ID,
    "status": "Running",
    "createdDateTime": "2026-06-03T22:00:00Z",
    "lastActionDateTime": "2026-06-03T22:00:07Z",
    "percentComplete": 40,
}


def problem_example(slug: str, **members: Any) -> dict[str, Any]:
    """Return an example of a problem document."""
    status, title = TITLES[slug]
    return {"type": URN + slug, "title": title, "status": status, "instance": f"/jobs/{_ID}", **members}


FAILURE: Final = {
    **problem_example("job-failed", title="Ledger does not balance", instance=f"{_URL}/status", code="ledger"),
    "jobId": _ID,
    "jobType": "accounts",
    "jobStatus": "FAILED",
    **_STATE,
    "completedAt": "2026-06-03T22:00:07Z",
}
CONFLICT: Final = problem_example("already-terminal", jobId=_ID, jobStatus="COMPLETED")
EVENTS: Final = (
    f': ok\nretry: 2000\nevent: status\nid: 1\ndata: {{"jobId": "{_ID}", "status": "PENDING", '
    f'"percentComplete": null, "lastUpdatedAt": "2026-06-03T22:00:00Z"}}\n\n'
    f'event: complete\nid: 4\ndata: {{"jobId": "{_ID}", "lastUpdatedAt": "2026-06-03T22:00:09Z"}}\n\n'
)
LOG_PAGE: Final = {
    "lines": [{"id": 1, "line": "1200 of 3000 rows", "at": "2026-06-03T22:00:07Z"}],
    "nextAfter": 1,
}
LOG: Final = (
    ': ok\nevent: progress\nid: 1\ndata: {"line": "1200 of 3000 rows", "at": "2026-06-03T22:00:07Z"}\n\n'
    f'retry: 86400000\nevent: result\ndata: {{"jobId": "{_ID}", "jobType": "accounts", "status": "CANCELLED", …}}'
    "\n\n"
)
