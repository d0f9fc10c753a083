"""Where the result of a job is: by the `result_url` and `redirect` of its type."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol
from urllib.parse import urljoin
from uuid import UUID

from flask import Flask, current_app, request
from werkzeug.urls import iri_to_uri

from flask_async_jobs import payloads
from flask_async_jobs.api.urls import endpoint_url, root_url, urls_of
from flask_async_jobs.errors import ConfigurationError
from flask_async_jobs.options import HandlerOptions
from flask_async_jobs.registry import Handler, HandlerRegistry
from flask_async_jobs.states import JobStatus, JobView

_log = logging.getLogger("flask_async_jobs")
_any_id = UUID(int=0)
_other: Final = re.compile(r"\s|//|(?!https?://)[a-z][a-z0-9+.-]*:", re.IGNORECASE)
"""How a URL begins that leads elsewhere than it seems to: another host's, as `//host`, or a script."""


class Results(Protocol):
    """The results of the jobs of one application, and the handlers that gave them."""

    @property
    def registry(self) -> HandlerRegistry:
        """The handlers of the application."""
        ...

    def result_of(self, job_id: UUID) -> str | None:
        """Return the stored result of a job as JSON text, or None."""
        ...


def with_result(results: Results, job: JobView) -> JobView:
    """Return a COMPLETED job with its result, if it has one. Reads the database."""
    if job.status is not JobStatus.COMPLETED or job.result is not None:
        return job
    text = results.result_of(job.job_id)
    return job if text is None else replace(job, result=payloads.parse(text))


def located(results: Results, job: JobView) -> JobView:
    """Return a COMPLETED job with the URL of its result, where its type says one. Needs an application context.

    Reads the database only for a type whose `result_url` is a callable. When no URL can be made, that is logged,
    and the job has none: its state does not depend on it.
    """
    options = _options_of(results, job)
    if options is None or job.result_url is not None:
        return job
    if callable(options.result_url):
        job = with_result(results, job)
    try:
        url = _url_of(options, job)
    except Exception:
        _log.exception("the result_url of %r gives no URL for job %s", job.type, job.job_id)
        return job
    return replace(job, result_url=url)


def redirects(results: Results, job: JobView) -> bool:
    """Return whether the state of a job, as `located` gave it, is told by a redirect to its result."""
    options = _options_of(results, job)
    return options is not None and options.redirect and job.result_url is not None


def locating(results: Results) -> Callable[[JobView], JobView]:
    """Return what does as `located` after the current request has ended, and with the URLs that it has."""
    app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
    environ = request.environ

    def locate(job: JobView) -> JobView:
        if _options_of(results, job) is None:
            return job
        with app.request_context(environ):
            return located(results, job)

    return locate


def check_result_url(app: Flask, handler: Handler) -> None:
    """Check what `result_url` names, once the application has all its routes.

    Raises:
        ConfigurationError: It names an endpoint that the application lacks, or that takes more than a job's id.
    """
    name = handler.options.result_url
    if not isinstance(name, str) or "/" in name:
        return
    try:
        app.url_map.bind("").build(name, {"job_id": str(_any_id)})
    except (LookupError, ValueError):
        raise ConfigurationError(
            f"{handler.type!r}: result_url is {name!r}, and no endpoint of that name takes a job_id: give one, "
            f"or a path such as '/listings/{{job_id}}'"
        ) from None


def _options_of(results: Results, job: JobView) -> HandlerOptions | None:
    """Return the options of a job's type, if they say where its result is."""
    if job.status is not JobStatus.COMPLETED or job.type not in results.registry:
        return None
    options = results.registry.get(job.type).options
    return options if options.result_url or options.redirect else None


def _url_of(options: HandlerOptions, job: JobView) -> str | None:
    match options.result_url:
        case None:
            urls = urls_of(job.job_id)
            return urls.result if urls else None
        case str() as text if "/" in text:
            return iri_to_uri(_below_root(text.replace("{job_id}", str(job.job_id))))
        case str() as endpoint:
            return endpoint_url(endpoint, job_id=job.job_id)
        case function:
            return _checked(function(job))


def _below_root(text: str) -> str:
    return root_url() + text[1:] if text.startswith("/") else text


def _checked(url: object) -> str | None:
    if url is None:
        return None
    if not isinstance(url, str) or not url.strip() or not url.isprintable() or _other.match(url):
        raise ValueError(f"{url!r} is no path and no http or https URL")
    return iri_to_uri(urljoin(root_url(), url))
