"""The OpenAPI document: examples, headers and problems of the routes, and an operation for each type."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from http import HTTPStatus
from itertools import groupby
from typing import Any, Final

import flask
from apispec.ext.marshmallow.common import make_schema_key
from flask_smorest import Api, Blueprint
from flask_smorest.utils import load_info_from_docstring
from marshmallow import Schema
from werkzeug.routing import Rule

from flask_async_jobs.api.batch_schemas import batch_request_schema
from flask_async_jobs.api.examples import problem_example
from flask_async_jobs.api.headers import (
    ALLOW,
    BATCH_SUBMISSION_HEADERS,
    NO_STORE,
    RETRY_AFTER,
    SUBMISSION_HEADERS,
)
from flask_async_jobs.api.problems import MEDIA_TYPE, TITLES
from flask_async_jobs.api.schemas import AsyncJobProblemSchema
from flask_async_jobs.config import Settings
from flask_async_jobs.registry import Handler

View = Callable[..., Any]

EXACTLY: Final = {"strict_slashes": False, "merge_slashes": False}
"""The options of every route: a path with a final slash is served or is 404, never redirected."""

OF_SUBMISSIONS: Final = (
    "unknown-type",
    "invalid-type",
    "invalid-payload 400",
    "idempotency-key-required",
    "invalid-idempotency-key",
    "invalid-payload",
    "malformed-request",
    "unsupported-media-type",
    "payload-too-large",
    "idempotency-key-conflict",
    "too-many-active",
    "saturated",
)
"""What a submission may meet, of a job and of a batch."""
ANYWHERE: Final = ("owner-required", "not-found", "method-not-allowed", "storage-unavailable", "internal-error")
"""The problems that every route may answer with."""

_extra_headers: Final = {405: ALLOW, 429: RETRY_AFTER, 503: RETRY_AFTER}


class JobsBlueprint(Blueprint):  # type: ignore[misc]
    """A blueprint whose submission route is documented type by type."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._prepare_doc_cbks.append(_without_default_response)

    def add_undocumented(self, rule: str, view: View, **options: Any) -> None:
        """Add a route that is not in the document."""
        flask.Blueprint.add_url_rule(self, rule, view_func=view, **options)

    def answer(
        self,
        status: int,
        schema: Any = None,
        *,
        description: str | None = None,
        content_type: str | None = None,
        **shown: Any,
    ) -> Callable[[View], View]:
        """Document one answer of a view, in the form of `Blueprint.response` and `alt_response`.

        Those wrap the view and copy its documentation once for each answer; here a view stays one function, and its
        answers are collected on it.
        """
        described = {"schema": schema, "description": description or HTTPStatus(status).phrase, **shown}
        about = {name: value for name, value in described.items() if value is not None}
        about["content_type"] = content_type

        def decorate(view: View) -> View:
            responses = _about(view).setdefault("response", {}).setdefault("responses", {})
            responses.setdefault(status, []).append(about)
            return view

        return decorate

    def asks(self, *parameters: dict[str, Any]) -> Callable[[View], View]:
        """Document the headers and the parameters of the query that a view reads."""

        def decorate(view: View) -> View:
            _about(view)["manual_doc"] = {"parameters": list(parameters)}
            return view

        return decorate

    def problems(self, *slugs: str) -> Callable[[View], View]:
        """Document the problems of a view, those of one status together.

        A slug may be followed by the status that it has here, if that is not its usual one: `invalid-payload 400`.
        """
        sent = sorted((_sent(slug) for slug in (*slugs, *ANYWHERE)), key=lambda each: each[0])

        def decorate(view: View) -> View:
            for status, group in groupby(sent, key=lambda each: each[0]):
                examples = {slug: {"value": problem_example(slug, status=status)} for _, slug in group}
                view = self.answer(
                    status,
                    AsyncJobProblemSchema,
                    content_type=MEDIA_TYPE,
                    description=", ".join(TITLES[slug][1] for slug in examples),
                    examples=examples,
                    headers=NO_STORE | _extra_headers.get(status, {}),
                )(view)
            return view

        return decorate

    def describe(self, handler: Handler, view: View, *, api: Api, app: flask.Flask, path: str) -> None:
        """Add the operation that submits a job of one type; its text is the handler's docstring."""
        about = deepcopy(view._apidoc)  # type: ignore[attr-defined]
        parameters: list[dict[str, Any]] = deepcopy(SUBMISSION_HEADERS)
        parameters[0]["required"] = handler.options.require_idempotency_key
        if handler.options.payload_schema is not None:
            _name_component(api, handler.options.payload_schema, f"{handler.type}.payload")
            parameters.append({"in": "json", "required": True, "schema": handler.options.payload_schema})
        if not handler.options.redirect:
            about["response"]["responses"].pop(303, None)
        text = {**_text(handler), "operationId": f"submit_{handler.type}"}
        self._add_operation(about, parameters, text, api=api, app=app, path=path)

    def describe_batch(
        self, handler: Handler, view: View, settings: Settings, *, api: Api, app: flask.Flask, path: str
    ) -> None:
        """Add the operation that submits a batch of one type."""
        parameters: list[dict[str, Any]] = deepcopy(BATCH_SUBMISSION_HEADERS)
        required = settings.batch_require_idempotency_key or handler.options.require_idempotency_key
        parameters[0]["required"] = required
        if handler.options.payload_schema is not None:
            _name_component(api, handler.options.payload_schema, f"{handler.type}.payload")
        most = settings.batch_max_items
        parameters.append({"in": "json", "required": True, "schema": batch_request_schema(handler, most)})
        text = {
            "summary": f"Submit a batch of `{handler.type}`",
            "description": (
                f"Up to {most} items are stored together, each as a job of its own, or none of them is: "
                f"{_text(handler)['summary']}"
            ),
            "operationId": f"submit_batch_{handler.type}",
        }
        about = deepcopy(view._apidoc)  # type: ignore[attr-defined]
        self._add_operation(about, parameters, text, api=api, app=app, path=path)

    def _add_operation(
        self,
        about: dict[str, Any],
        parameters: list[dict[str, Any]],
        text: dict[str, str],
        *,
        api: Api,
        app: flask.Flask,
        path: str,
    ) -> None:
        about["arguments"] = {"parameters": parameters}
        operation: dict[str, Any] = {}
        for prepare in self._prepare_doc_cbks:
            operation = prepare(operation, about, api=api, app=app, spec=api.spec, method="post")
        operation.update(text)
        operation["tags"] = [self.name]
        api.spec.path(rule=Rule(path), operations={"post": operation}, parameters=[])


def _about(view: View) -> dict[str, Any]:
    about: dict[str, Any] = view.__dict__.setdefault("_apidoc", {})
    return about


def _name_component(api: Api, schema: Schema, name: str) -> None:
    """Give a schema a name of its own in the document: two types may use variants of one class."""
    if make_schema_key(schema) not in api.ma_plugin.converter.refs:
        api.spec.components.schema(name, schema=schema)


def _without_default_response(doc: dict[str, Any], info: dict[str, Any], **context: Any) -> dict[str, Any]:
    doc.get("responses", {}).pop("default", None)
    return doc


def _text(handler: Handler) -> dict[str, str]:
    text: dict[str, str] = load_info_from_docstring(getattr(handler.function, "__doc__", None) or "")
    return text if text.get("summary") else {"summary": f"Make sure that `{handler.type}` is done"}


def _sent(slug: str) -> tuple[int, str]:
    name, _, status = slug.partition(" ")
    return (int(status) if status else TITLES[name][0]), name
