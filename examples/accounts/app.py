"""The application factory: Flask, Flask-SQLAlchemy and flask-async-jobs, put together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from flask import Flask

from examples.accounts.database import normalise, prepare_sqlite
from examples.accounts.handlers import jobs
from examples.accounts.models import db
from examples.accounts.views import accounts

DEFAULT_DATABASE = "sqlite:///accounts.sqlite"
DEFAULT_ACCOUNTS = 50_000


def create_app(config: Mapping[str, Any] | None = None) -> Flask:
    """Return the application; nothing connects to the database and nothing starts yet.

    Args:
        config: Settings that go before those of the environment.
    """
    app = Flask("examples.accounts")
    app.config.from_mapping(settings())
    app.config.from_mapping(config or {})
    db.init_app(app)
    with app.app_context():
        prepare_sqlite(db.engine)
    jobs.init_app(app)
    app.register_blueprint(accounts)
    return app


def settings() -> dict[str, Any]:
    """Return the settings as the environment wants them; a relative SQLite file is in the instance folder."""
    return {
        "ACCOUNTS": int(os.environ.get("ACCOUNTS", DEFAULT_ACCOUNTS)),
        "SQLALCHEMY_DATABASE_URI": normalise(os.environ.get("DATABASE_URL") or DEFAULT_DATABASE),
        "ASYNC_JOBS_FRESHNESS_ENABLED": True,
        "ASYNC_JOBS_PROCESSING_CONCURRENCY_LIMIT": 8,
        "ASYNC_JOBS_PROCESSING_LEASE": "PT5S",  # short, so that a killed demo goes on soon after its restart
        "ASYNC_JOBS_RECOVERY_SCAN_INTERVAL": "PT2S",
    }
