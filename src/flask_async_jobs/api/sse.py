"""Server-sent events (WHATWG HTML, section 9.2): encoding, as pure functions."""

from __future__ import annotations

import json
from typing import Any, Final

from flask_async_jobs.api.batch_replies import counts
from flask_async_jobs.api.replies import instant, instant_or_none
from flask_async_jobs.events import JobEvent
from flask_async_jobs.states import BatchView

COMMENT: Final = ": ok\n"
RETRY_MS: Final = 2_000


def encode(event: str, data: dict[str, Any], *, id: int | None = None, retry: int | None = None) -> str:
    """Return one block. The data is JSON on one line, so no text in it can break the framing."""
    lines = [f"retry: {retry}"] if retry is not None else []
    lines.append(f"event: {event}")
    if id is not None:
        lines.append(f"id: {id}")
    lines.append(f"data: {json.dumps(data)}")
    return "\n".join(lines) + "\n\n"


def encode_event(event: JobEvent, result_url: str | None = None, *, retry: int | None = None) -> str:
    """Return the block of one change of a job; its id is the revision."""
    return encode(event.event, _data(event, result_url), id=event.revision, retry=retry)


def encode_batch(batch: BatchView, *, retry: int | None = None) -> str:
    """Return the block of one change of a batch; its id is the sum of the items' revisions."""
    data = {"batchId": str(batch.batch_id), "status": batch.status, **counts(batch)}
    if not batch.status.is_terminal:
        return encode("progress", data, id=batch.revision, retry=retry)
    data["completedAt"] = instant_or_none(batch.completed_at)
    return encode("complete", data, id=batch.revision, retry=retry)


def _data(event: JobEvent, result_url: str | None) -> dict[str, Any]:
    data: dict[str, Any] = {"jobId": str(event.job_id)}
    if event.event == "complete":
        data["lastUpdatedAt"] = instant(event.last_updated_at)
        return data | ({"resultUrl": result_url} if result_url else {})
    data |= {
        "status": event.status,
        "percentComplete": event.percent_complete,
        "lastUpdatedAt": instant(event.last_updated_at),
    }
    if event.event in ("failed", "cancelled"):
        data["effectStarted"] = event.effect_started
    if event.event == "failed":
        data |= {"title": event.title, "code": event.code}
    return data
