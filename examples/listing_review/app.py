"""The application factory: Flask and flask-async-jobs; the library makes its own engine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from decimal import Decimal
from functools import partialmethod
from typing import Any

from flask import Flask
from flask.json.provider import DefaultJSONProvider
from sqlalchemy import Engine

from examples.listing_review.handlers import jobs
from examples.listing_review.views import reviews

DEFAULT_DATABASE = "sqlite:///listing_review.sqlite"


class ExactJson(DefaultJSONProvider):
    """Reads 45.00 as the decimal that it is: a float would make 45.0 of it."""

    loads = partialmethod(DefaultJSONProvider.loads, parse_float=Decimal)


def create_app(config: Mapping[str, Any] | None = None, engine: Engine | None = None) -> Flask:
    """Return the application; nothing connects to the database and nothing starts yet.

    Args:
        config: Settings that go before those of the environment.
        engine: A database of the caller's, in place of the one that `DATABASE_URL` names.
    """
    app = Flask("examples.listing_review")
    app.json = ExactJson(app)
    app.config.from_mapping(REVIEW_SLOW_SECONDS=6, ASYNC_JOBS_PROCESSING_CONCURRENCY_LIMIT=2)
    app.config.from_mapping(ASYNC_JOBS_RETRY_AFTER_SECONDS=1)
    app.config.from_prefixed_env()
    app.config.from_mapping(config or {})
    if engine is None:
        app.config["ASYNC_JOBS_DATABASE_URL"] = database_url()
    jobs.init_app(app, engine=engine)
    app.register_blueprint(reviews)
    return app


def database_url() -> str:
    """Return `DATABASE_URL` with the driver that the library installs, psycopg 3, where it names none."""
    url = os.environ.get("DATABASE_URL") or DEFAULT_DATABASE
    scheme, separator, rest = url.partition("://")
    return f"postgresql+psycopg://{rest}" if separator and scheme in {"postgres", "postgresql"} else url
