"""The URLs that are given out: absolute in a request, and wherever the application knows its server name.

Without either they are relative to the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from flask import current_app, has_request_context, request, url_for

JOB_ENDPOINT: Final = "async_jobs.get_job"
BATCH_ENDPOINT: Final = "async_job_batches.get_batch"


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
    def result(self) -> str:
        """The small stored result."""
        return f"{self.job}/result"

    @property
    def operation(self) -> str:
        """The state in the words of stock pollers."""
        return f"{self.job}/operation"

    @property
    def cancel(self) -> str:
        """What to DELETE."""
        return self.job


@dataclass(frozen=True, slots=True)
class BatchUrls:
    """Where a batch is found."""

    status: str

    @property
    def items(self) -> str:
        """The pages of items."""
        return f"{self.status}/items"

    @property
    def events(self) -> str:
        """The event stream."""
        return f"{self.status}/events"


def urls_of(job_id: UUID) -> JobUrls | None:
    """Return the URLs of a job, or None where the application has no routes of the library (`WEB_ENABLED` off)."""
    if JOB_ENDPOINT not in current_app.view_functions:
        return None
    return JobUrls(endpoint_url(JOB_ENDPOINT, job_id=job_id))


def urls_of_batch(batch_id: UUID) -> BatchUrls | None:
    """Return the URLs of a batch; see `urls_of`."""
    if BATCH_ENDPOINT not in current_app.view_functions:
        return None
    return BatchUrls(endpoint_url(BATCH_ENDPOINT, batch_id=batch_id))


def endpoint_url(endpoint: str, **ids: UUID) -> str:
    """Return the URL of an endpoint that takes these ids: a `job_id` or a `batch_id`.

    Raises:
        werkzeug.routing.BuildError: The application has no such endpoint, or it takes more.
    """
    values = {name: str(id) for name, id in ids.items()}
    if has_request_context() or current_app.config["SERVER_NAME"]:
        return url_for(endpoint, **values, _external=True)
    adapter = current_app.url_map.bind("", script_name=current_app.config["APPLICATION_ROOT"])
    return adapter.build(endpoint, values, force_external=False)


def root_url() -> str:
    """Return the root of the application, with a slash at its end."""
    if has_request_context():
        return request.root_url
    server, root = current_app.config["SERVER_NAME"], current_app.config["APPLICATION_ROOT"].rstrip("/")
    return f"{current_app.config['PREFERRED_URL_SCHEME']}://{server}{root}/" if server else f"{root}/"
