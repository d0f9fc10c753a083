"""The bodies and headers of answers about jobs, as pure functions of the job."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from werkzeug.http import http_date

from flask_async_jobs.api.problems import Problem
from flask_async_jobs.api.urls import JobUrls
from flask_async_jobs.policy import JobPolicy
from flask_async_jobs.records import LogEntry
from flask_async_jobs.states import JobStatus, JobView

_operation_words = {
    JobStatus.PENDING: "NotStarted",
    JobStatus.PROCESSING: "Running",
    JobStatus.COMPLETED: "Succeeded",
    JobStatus.FAILED: "Failed",
    JobStatus.CANCELLED: "Canceled",
}


def instant(moment: datetime) -> str:
    """Return an instant in RFC 3339 form, in UTC with `Z`."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def instant_or_none(moment: datetime | None) -> str | None:
    """Return an instant as `instant` does, or None for none."""
    return None if moment is None else instant(moment)


def accepted_body(job: JobView, disposition: str, urls: JobUrls) -> dict[str, Any]:
    """Return the body of a 202 to a submission."""
    return {
        "jobId": str(job.job_id),
        "status": job.status,
        "disposition": disposition,
        "statusUrl": urls.status,
        "eventsUrl": urls.events,
        "logUrl": urls.log,
        "operationUrl": urls.operation,
        "cancelUrl": urls.cancel,
    }


def accepted_headers(job: JobView, urls: JobUrls, policy: JobPolicy) -> dict[str, str]:
    """Return the headers of a 202 to a submission."""
    return {"Location": urls.status, "Operation-Location": urls.operation, **retry_after(job, policy)}


def status_body(job: JobView) -> dict[str, Any]:
    """Return the state of a job that has not failed."""
    return {"jobId": str(job.job_id), "jobType": job.type, "status": job.status, **_common(job)}


def failure(job: JobView, urls: JobUrls) -> Problem:
    """Return the state of a FAILED job as a problem; its `instance` is the status URL."""
    assert job.error is not None
    members = {"code": job.error.code, "jobId": str(job.job_id), "jobType": job.type, "jobStatus": job.status}
    return Problem("job-failed", job.error.detail, title=job.error.title, members=members | _common(job))


def log_line(entry: LogEntry) -> dict[str, Any]:
    """Return a line of the log without its number."""
    return {"line": entry.line, "at": instant(entry.at)}


def operation_body(job: JobView) -> dict[str, Any]:
    """Return the state in the words of stock long-running-operation clients."""
    body: dict[str, Any] = {
        "id": str(job.job_id),
        "status": _operation_words[job.status],
        "createdDateTime": instant(job.created_at),
        "lastActionDateTime": instant(job.last_updated_at),
        "percentComplete": job.percent_complete,
    }
    if job.error is not None:
        body["error"] = {"code": job.error.code, "message": job.error.detail or job.error.title}
    return body


def status_headers(job: JobView, policy: JobPolicy) -> dict[str, str]:
    """Return `Expires`, and `Retry-After` while the job is active."""
    return {"Expires": http_date(policy.expires_at(job)), **retry_after(job, policy)}


def retry_after(job: JobView, policy: JobPolicy) -> dict[str, str]:
    """Return `Retry-After` for a job that is active, and nothing for one that has ended."""
    return {} if job.status.is_terminal else {"Retry-After": str(max(1, policy.retry_after(job)))}


def _common(job: JobView) -> dict[str, Any]:
    members: dict[str, Any] = {
        "createdAt": instant(job.created_at),
        "lastUpdatedAt": instant(job.last_updated_at),
        "percentComplete": job.percent_complete,
        "attempt": job.attempt,
        "effectStarted": job.effect_started,
    }
    if job.started_at is not None:
        members["startedAt"] = instant(job.started_at)
    if job.completed_at is not None:
        members["completedAt"] = instant(job.completed_at)
    if job.result_url is not None:
        members["resultUrl"] = job.result_url
    if job.batch_id is not None:
        members["batchId"] = str(job.batch_id)
    return members
