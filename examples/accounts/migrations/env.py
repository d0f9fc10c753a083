"""Alembic's environment: the application's engine, and both sets of tables."""

from __future__ import annotations

from alembic import context
from flask import Flask
from sqlalchemy import MetaData

from examples.accounts.handlers import jobs
from examples.accounts.models import db


def target_metadata() -> list[MetaData]:
    """Return what a later autogenerate compares the database with: never without the library's tables."""
    return [db.metadata, jobs.metadata]


def run_migrations(app: Flask) -> None:
    """Run the asked-for versions on the engine of `app`, in one transaction."""
    with app.app_context(), db.engine.connect() as connection:
        context.configure(connection=connection, target_metadata=target_metadata())
        with context.begin_transaction():
            context.run_migrations()


run_migrations(context.config.attributes["app"])
