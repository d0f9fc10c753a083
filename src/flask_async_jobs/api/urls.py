"""The URLs of a job: absolute in a request, and wherever the application knows its server name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from flask import current_app, has_request_context, url_for

JOB_ENDPOINT: Final = "async_jobs.get_job"


@dataclass(frozen=True, slots=True)
class JobUrls:
    """Where a job is found."""

    job: str

    @property
    def status(self) -> str:
        """The status resource."""
        return f"{self.job}/status"

    @property
    def events(self) -> str:
        """The event stream."""
        return f"{self.job}/events"

    @property
    def log(self) -> str:
        """The progress lines."""
        return f"{self.job}/log"

    @property
    def operation(self) -> str:
        """The state in the words of stock pollers."""
        return f"{self.job}/operation"

    @property
    def cancel(self) -> str:
        """What to DELETE."""
        return self.job


def urls_of(job_id: UUID) -> JobUrls | None:
    """Return the URLs of a job, or None where the application has no routes of the library (`WEB_ENABLED` off).

    Without a request they are absolute if `SERVER_NAME` is set, and otherwise relative to the server.
    """
    if JOB_ENDPOINT not in current_app.view_functions:
        return None
    if has_request_context() or current_app.config["SERVER_NAME"]:
        return JobUrls(url_for(JOB_ENDPOINT, job_id=str(job_id), _external=True))
    root = current_app.config["APPLICATION_ROOT"]
    adapter = current_app.url_map.bind("", script_name=root)
    return JobUrls(adapter.build(JOB_ENDPOINT, {"job_id": str(job_id)}, force_external=False))
