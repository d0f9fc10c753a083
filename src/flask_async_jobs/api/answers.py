"""The answers about one job: accepted, its state, and either of them held until something has changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from flask import Response, request

from flask_async_jobs.api import replies
from flask_async_jobs.api.boundary import not_modified, problem_reply, reply
from flask_async_jobs.api.results import located, redirects
from flask_async_jobs.api.service import JobService
from flask_async_jobs.api.urls import JobUrls, urls_of
from flask_async_jobs.api.waiting import etag_of, is_known, wait_of
from flask_async_jobs.states import JobStatus, JobView
from flask_async_jobs.submission import Submission


def accepted(service: JobService, submission: Submission) -> Response:
    """Return the 202 to a submission."""
    job, urls = submission.job, urls_for(submission.job)
    body = replies.accepted_body(job, submission.disposition, urls)
    return reply(body, 202, replies.accepted_headers(job, urls, service.policy))


def status(service: JobService, job: JobView, code: int = 200, extra: Mapping[str, str] | None = None) -> Response:
    """Return the state of a job: 200, 303 to its result, 304 to one who knows it, or the problem of a failure."""
    job = located(service, job)
    headers = replies.status_headers(job, service.policy) | dict(extra or {})
    if job.result_url and redirects(service, job):
        return reply(replies.status_body(job), 303, headers | {"Location": job.result_url})
    if job.status is not JobStatus.FAILED:
        if code == 200:
            headers["ETag"] = etag_of(job)
        if code == 200 and request.method in ("GET", "HEAD") and is_known(request, job):
            return not_modified(headers)
        return reply(replies.status_body(job), code, headers)
    urls = urls_for(job)
    response = problem_reply(replies.failure(job, urls), urls.status)
    response.headers.update(headers)
    return response


def urls_for(job: JobView) -> JobUrls:
    """Return the URLs of a job, where the routes are registered."""
    urls = urls_of(job.job_id)
    assert urls is not None, "the routes are registered, or this would not answer"
    return urls


def awaited(service: JobService, submission: Submission, seconds: int) -> Response:
    """Hold the answer until the job has ended: the status route's answer then, or the 202 after the time."""
    job = service.wait(submission.job.job_id, lambda job: job.status.is_terminal, timedelta(seconds=seconds))
    if job is None:
        return accepted(service, submission)
    applied = {"Preference-Applied": f"wait={seconds}"}
    if job.status.is_terminal:
        return status(service, job, extra={**applied, "Location": urls_for(job).status})
    response = accepted(service, Submission(job, submission.disposition))
    response.headers.update(applied)
    return response


def state_of(service: JobService, job: JobView) -> Response:
    """Return the state, with `Prefer: wait` when it has changed from the one that the client knows."""
    seconds = wait_of(request, service.settings.max_wait)
    known = not request.if_none_match or is_known(request, job)
    if not seconds or not known or job.status.is_terminal:
        return status(service, job)
    changed = service.wait(job.job_id, lambda state: state.revision != job.revision, timedelta(seconds=seconds))
    if changed is None:
        return status(service, job)
    return status(service, changed, extra={"Preference-Applied": f"wait={seconds}"})
