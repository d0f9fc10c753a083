"""Putting the routes into an application: into its own `Api`, or into one that the library makes."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from importlib.resources import files
from threading import RLock
from typing import Any

import flask
from flask import Flask, Response
from flask_smorest import Api, Blueprint
from flask_swagger_ui import __name__ as assets_package

from flask_async_jobs.api.batch_views import batches_blueprint
from flask_async_jobs.api.boundary import answering, serve_rest
from flask_async_jobs.api.schemas import AsyncJobProblemSchema
from flask_async_jobs.api.service import JobService
from flask_async_jobs.api.views import jobs_blueprint
from flask_async_jobs.errors import ConfigurationError
from flask_async_jobs.registry import Handler
from flask_async_jobs.states import uuid_form

TITLE = "Asynchronous jobs"
VERSION = "1"
OPENAPI = "3.1.0"

_page = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="stylesheet" href="{assets}/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="{assets}/swagger-ui-bundle.js"></script>
<script>window.ui = SwaggerUIBundle({{url: {document}, dom_id: "#swagger-ui", validatorUrl: null}})</script>
</body>
</html>
"""


class OwnApi(Api):  # type: ignore[misc]
    """The `Api` of an application that has none: its own document, and no hold on the application's errors.

    The document is made when it is asked for: that takes longer than all else at the start of an application, and
    most processes are never asked.
    """

    ERROR_SCHEMA = AsyncJobProblemSchema

    def __init__(self, *args: Any, **options: Any) -> None:
        self._lock = RLock()
        self._undescribed: deque[Callable[[], None]] = deque()
        self._describing = False
        super().__init__(*args, **options)

    @property
    def spec(self) -> Any:
        """The whole document."""
        with self._lock:
            if not self._describing:
                self._describing = True
                try:
                    while self._undescribed:
                        self._undescribed[0]()
                        self._undescribed.popleft()
                finally:
                    self._describing = False
        return self._spec

    @spec.setter
    def spec(self, document: Any) -> None:
        self._spec = document

    def describe_later(self, describe: Callable[[], None]) -> None:
        """Call `describe`, which adds something to `spec`, before anybody sees that."""
        self._undescribed.append(describe)

    def register_blueprint(self, blp: Blueprint, **options: Any) -> None:
        """Register a blueprint with the application now, and what it documents later."""
        app: Flask = self._app
        app.extensions["flask-smorest"]["blp_name_to_api"][blp.name] = self
        app.register_blueprint(blp, **options)
        self.describe_later(lambda: self._describe(blp))

    def _describe(self, blp: Blueprint) -> None:
        blp.register_views_in_doc(self, self._app, self.spec, name=blp.name, parameters=None)
        self.spec.tag({"name": blp.name, "description": blp.description})

    def _register_responses(self) -> None:
        self.describe_later(super()._register_responses)

    def _register_error_handlers(self) -> None:
        """Register none: the application's errors are the application's."""

    def _register_doc_blueprint(self) -> None:
        """Register none: `serve_document` does."""


def add_routes(app: Flask, service: JobService, api: Api | None) -> None:
    """Add the routes and their documentation.

    Args:
        app: The application.
        service: The operations behind the routes.
        api: The application's own `Api`; without one, a document and its page are served at `DOCS_URL_PREFIX`.

    Raises:
        ConfigurationError: `api` is not bound to the application yet.
    """
    settings = service.settings
    if api is None:
        api = _own_api(app)
        serve_document(app, api, settings.docs_url_prefix, settings.retry_after_seconds)
        serve_rest(app, settings.docs_url_prefix, lambda rest, methods: methods)
    elif api.spec is None:
        raise ConfigurationError(
            "api= is not initialised: call api.init_app(app) before jobs.init_app(app, api=api)"
        )
    _add_jobs(app, service, api)
    _add_batches(app, service, api)
    for prefix in (settings.url_prefix, settings.batches_url_prefix):
        serve_rest(app, prefix, lambda rest, methods: _methods_of(service, rest, methods))


def _add_jobs(app: Flask, service: JobService, api: Api) -> None:
    prefix = service.settings.url_prefix
    blueprint, submit = jobs_blueprint(service)
    api.register_blueprint(blueprint, url_prefix=prefix)

    def describe(handler: Handler) -> None:
        blueprint.describe(handler, submit, api=api, app=app, path=f"{prefix}/{handler.type}")

    service.observe(lambda handler: _describe(api, lambda: describe(handler)))


def _describe(api: Api, describe: Callable[[], None]) -> None:
    """Add something to the document: at once to the application's, when it is asked for to the library's own."""
    if isinstance(api, OwnApi):
        api.describe_later(describe)
    else:
        describe()


def _add_batches(app: Flask, service: JobService, api: Api) -> None:
    settings, prefix = service.settings, service.settings.batches_url_prefix
    blueprint, submit = batches_blueprint(service)
    api.register_blueprint(blueprint, url_prefix=prefix)

    def describe(handler: Handler) -> None:
        blueprint.describe_batch(handler, submit, settings, api=api, app=app, path=f"{prefix}/{handler.type}")

    service.observe(lambda handler: _describe(api, lambda: describe(handler)))


def _methods_of(service: JobService, rest: str, routed: set[str]) -> set[str]:
    """Return the methods of a path below a prefix: `/jobs/{x}` is a type or a job, and cannot be both.

    So is `/batches/{x}` a type or a batch.
    """
    segments = rest.removesuffix("/").split("/")
    if segments == [""]:
        return set()
    if len(segments) > 1:
        return routed
    if segments[0] in service.registry:
        return {"POST"}
    return routed - {"POST"} if uuid_form.fullmatch(segments[0]) else set()


def _own_api(app: Flask) -> OwnApi:
    taken = app.extensions.get("flask-smorest", {}).get("apis", {})
    prefix = "ASYNC_JOBS_DOCUMENT" if "" in taken else ""
    spec = {"title": TITLE, "version": VERSION, "openapi_version": OPENAPI}
    api = OwnApi(app, spec_kwargs=spec, config_prefix=prefix)
    api.ma_plugin.converter.add_attribute_function(_numbers)
    return api


def _numbers(converter: Any, field: Any, ret: dict[str, Any]) -> dict[str, Any]:
    """Return the bounds and defaults of a field that are decimals, as the numbers that JSON has."""
    return {name: float(value) for name, value in ret.items() if isinstance(value, Decimal)}


def serve_document(app: Flask, api: Api, prefix: str, retry_after: int) -> None:
    """Serve the OpenAPI document and a Swagger UI page whose assets come from an installed package."""
    assets = files(assets_package) / "dist"
    answers = answering(lambda: retry_after)
    docs = flask.Blueprint("async_jobs_docs", __name__, url_prefix=prefix)

    def page() -> Response:
        text = _page.format(
            title=TITLE,
            assets=flask.url_for("async_jobs_docs.asset", name="").rstrip("/"),
            document=json.dumps(flask.url_for("async_jobs_docs.document")),
        )
        return _uncached(Response(text, mimetype="text/html"))

    def document() -> Response:
        text = flask.json.dumps(api.spec.to_dict(), indent=2, sort_keys=False)
        return _uncached(Response(text, mimetype="application/json"))

    def asset(name: str) -> Response:
        return _uncached(flask.send_from_directory(str(assets), name))

    options: dict[str, Any] = {"strict_slashes": False, "merge_slashes": False}
    for view, *paths in (
        (page, "", "/"),
        (document, "/openapi.json"),
        (asset, "/assets/<name>"),
    ):
        answering_view = answers(view)
        for path in paths:
            docs.add_url_rule(path, view.__name__, answering_view, **options)
    app.register_blueprint(docs)


def _uncached(response: Response) -> Response:
    response.headers["Cache-Control"] = "no-store"
    return response
