"""Where errors become problems: around each view, and on every path under a prefix that no view serves.

Problems are returned, not raised: an application's own handler for 404 or `Exception` would take a raised one.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Container, Mapping
from typing import Any, Final, ParamSpec
from urllib.parse import quote

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import BaseConverter

from flask_async_jobs.api.problems import MEDIA_TYPE, Problem, ProblemRaised, problem_of, problem_of_http
from flask_async_jobs.errors import AsyncJobsError

P = ParamSpec("P")
View = Callable[..., Response]

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

_log = logging.getLogger("flask_async_jobs")


def reply(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer that no cache keeps."""
    return _response(body, status, headers or {}, "application/json")


def stored_reply(text: str | None) -> Response:
    """Return JSON as it is stored, so that its numbers keep their decimal text; 204 if there is none."""
    response = Response(text, 204 if text is None else 200, mimetype="application/json")
    response.headers["Cache-Control"] = "no-store"
    if text is None:
        del response.headers["Content-Type"]
    return response


def not_modified(headers: Mapping[str, str]) -> Response:
    """Return the answer to one who knows the current state."""
    response = Response(status=304, headers={**headers, "Cache-Control": "no-store"})
    del response.headers["Content-Type"]
    return response


def problem_reply(problem: Problem, instance: str | None = None) -> Response:
    """Return a problem document about `instance`, by default the path that was asked for."""
    where = instance or quote(request.root_path.rstrip("/") + request.path, safe="/:@!$&'()*+,;=~-._")
    return _response(problem.document(where), problem.code, problem.headers, MEDIA_TYPE)


def _response(body: Mapping[str, Any], status: int, headers: Mapping[str, str], mimetype: str) -> Response:
    response = Response(json.dumps(body, default=str) + "\n", status, mimetype=mimetype)
    response.headers.update(headers)
    response.headers["Cache-Control"] = "no-store"
    return response


def answering(retry_after: Callable[[], int]) -> Callable[[Callable[P, Response]], Callable[P, Response]]:
    """Return a decorator that answers whatever a view raises with a problem.

    Args:
        retry_after: Gives the seconds for `Retry-After` of a 429 or 503.
    """

    def decorate(view: Callable[P, Response]) -> Callable[P, Response]:
        @functools.wraps(view)
        def answer(*args: P.args, **kwargs: P.kwargs) -> Response:
            try:
                return view(*args, **kwargs)
            except ProblemRaised as raised:
                return problem_reply(raised.problem)
            except AsyncJobsError as error:
                return problem_reply(problem_of(error, retry_after()))
            except HTTPException as error:
                if isinstance(error.response, Response) and error.response.status_code < 400:
                    return error.response
                return problem_reply(problem_of_http(error, retry_after()))
            except Exception:
                _log.exception("%s %s could not be answered", request.method, request.path)
                return problem_reply(Problem("internal-error", "The request could not be answered."))

        # OPTIONS is answered for the whole prefix, see `serve_rest`.
        answer.provide_automatic_options = False  # type: ignore[attr-defined]
        return answer

    return decorate


class Anything(BaseConverter):
    """Matches any rest of a path: slashes, doubled ones and line breaks included, or nothing."""

    regex = r"[\s\S]*"
    part_isolating = False


def serve_rest(app: Flask, prefix: str, methods_of: Callable[[str, set[str]], set[str]]) -> None:
    """Answer every path under `prefix` that no route serves, and every method that a route lacks.

    Args:
        app: The application.
        prefix: The path that is the library's, with everything below it.
        methods_of: Given a path below `prefix` and the methods its routes have, returns those that it has indeed.
    """
    endpoint = f"async_jobs.rest{prefix.replace('/', '.')}"

    def rest(rest: str = "") -> Response:
        methods = methods_of(rest, _routed(app, endpoint))
        if not methods:
            return problem_reply(Problem("not-found", "There is nothing at this address."))
        return other_method(methods)

    app.url_map.converters["async_jobs_anything"] = Anything
    app.view_functions[endpoint] = rest
    for path in (prefix, f"{prefix}/<async_jobs_anything:rest>"):
        # Not add_url_rule: this rule has to match every method, also one that Flask has never heard of.
        rule = app.url_rule_class(path, endpoint=endpoint, methods=None, strict_slashes=False, merge_slashes=False)
        rule.provide_automatic_options = False  # type: ignore[attr-defined]
        app.url_map.add(rule)


def other_method(methods: set[str]) -> Response:
    """Answer a method that a path does not have: `OPTIONS` with 204, any other with 405; both with `Allow`."""
    allow = {"Allow": ", ".join(sorted(methods | {"OPTIONS"}))}
    if request.method != "OPTIONS":
        return problem_reply(Problem("method-not-allowed", headers=allow))
    response = Response(status=204, headers={**allow, "Cache-Control": "no-store"})
    del response.headers["Content-Type"]
    return response


def but_for_types(types: Container[str], view: Callable[..., Response]) -> Callable[..., Response]:
    """Return the view of `/jobs/{id}` or `/batches/{id}` for what is not a type: a type has no method but POST."""

    @functools.wraps(view)
    def serve(**path: str) -> Response:
        (name,) = path.values()
        return other_method({"POST"}) if name in types else view(**path)

    return serve


def _routed(app: Flask, rest: str) -> set[str]:
    """Return the methods that some route of the current path has."""
    adapter = app.url_map.bind_to_environ(request.environ)
    return {method for method in METHODS if adapter.match(method=method)[0] != rest}
