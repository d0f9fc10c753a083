"""The bodies and headers of answers about batches, as pure functions of the batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from flask_async_jobs.api.replies import instant, instant_or_none
from flask_async_jobs.api.urls import BatchUrls
from flask_async_jobs.states import BatchItem, BatchView


def accepted_body(batch: BatchView, urls: BatchUrls) -> dict[str, Any]:
    """Return the body of the answer to a submission."""
    return {
        "batchId": str(batch.batch_id),
        "status": batch.status,
        "submittedAt": instant(batch.submitted_at),
        "total": batch.total,
        "statusUrl": urls.status,
        "itemsUrl": urls.items,
        "eventsUrl": urls.events,
    }


def summary_body(batch: BatchView, urls: BatchUrls) -> dict[str, Any]:
    """Return how far a batch is."""
    return {
        "batchId": str(batch.batch_id),
        "jobType": batch.type,
        "status": batch.status,
        "submittedAt": instant(batch.submitted_at),
        "completedAt": instant_or_none(batch.completed_at),
        **counts(batch),
        "itemsUrl": urls.items,
    }


def counts(batch: BatchView) -> dict[str, Any]:
    """Return how many items there are, and how many in each state; these add up to the total."""
    return {
        "total": batch.total,
        "pending": batch.pending,
        "processing": batch.processing,
        "completed": batch.completed,
        "failed": batch.failed,
        "cancelled": batch.cancelled,
    }


def retry_after(batch: BatchView, seconds: int) -> dict[str, str]:
    """Return `Retry-After` for a batch that is active, and nothing for one that has ended."""
    return {} if batch.status.is_terminal else {"Retry-After": str(seconds)}


def page_text(batch_id: UUID, items: Sequence[BatchItem], *, more: bool) -> str:
    """Return a page as JSON text, in which each result is what is stored, so that its numbers stay as they are."""
    start = json.dumps({"batchId": str(batch_id)})[:-1]
    listed = ", ".join(_item_text(item) for item in items)
    next_after = json.dumps(items[-1].position if more else None)
    return f'{start}, "items": [{listed}], "nextAfter": {next_after}}}\n'


def _item_text(item: BatchItem) -> str:
    members = {
        "itemId": item.item_id,
        "jobId": str(item.job_id),
        "status": item.status,
        "createdAt": instant(item.created_at),
        "startedAt": instant_or_none(item.started_at),
        "lastUpdatedAt": instant(item.last_updated_at),
        "completedAt": instant_or_none(item.completed_at),
        "error": _error(item),
    }
    return f'{json.dumps(members)[:-1]}, "result": {item.result or "null"}}}'


def _error(item: BatchItem) -> dict[str, Any] | None:
    if item.error is None:
        return None
    return {"title": item.error.title, "detail": item.error.detail, "code": item.error.code}
