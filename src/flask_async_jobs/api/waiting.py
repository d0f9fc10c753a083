"""Conditional requests and waiting: `If-None-Match` (RFC 9110) and `Prefer: wait` (RFC 7240)."""

from __future__ import annotations

import re
from datetime import timedelta

from flask import Request
from werkzeug.http import parse_list_header, quote_etag, unquote_header_value

from flask_async_jobs.states import JobView

_wait = re.compile(r"wait\s*=\s*0*(?P<seconds>[0-9]{1,10})[0-9]*", re.IGNORECASE)
"""Of a longer number the first ten digits do: they are more than any `MAX_WAIT`."""


def wait_of(request: Request, most: timedelta) -> int:
    """Return how many whole seconds to wait: what `Prefer: wait=N` asks for, at most `most`; 0 for not at all."""
    for preference in parse_list_header(",".join(request.headers.getlist("Prefer"))):
        match = _wait.fullmatch(unquoted(preference.partition(";")[0].strip()))
        if match:
            return min(int(match["seconds"]), int(most.total_seconds()))
    return 0


def unquoted(preference: str) -> str:
    """Return a preference whose value may be a quoted string with the value bare."""
    name, equals, value = preference.partition("=")
    return f"{name.strip()}{equals}{unquote_header_value(value.strip())}"


def etag_of(job: JobView) -> str:
    """Return the entity tag of a state: its revision."""
    return quote_etag(str(job.revision))


def is_known(request: Request, job: JobView) -> bool:
    """Return whether `If-None-Match` names this state, by weak comparison (RFC 9110 section 13.1.2)."""
    return bool(request.if_none_match) and request.if_none_match.contains_weak(str(job.revision))
