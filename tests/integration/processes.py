"""An application in this process, with its dispatcher where a test wants one."""

from collections.abc import Iterator
from contextlib import contextmanager

from flask import Flask
from sqlalchemy import Engine

from flask_async_jobs import AsyncJobs

made: list[tuple[AsyncJobs, Flask]] = []
"""What a test has made; `conftest` stops it, whatever the test used."""


def application(jobs: AsyncJobs, engine: Engine, init=None, **settings) -> Flask:
    """Return an application on `engine` with quick settings."""
    app = Flask("consumer")
    quick = {"PROCESSING_POLL_INTERVAL": 0.1, "RECOVERY_SCAN_INTERVAL": "PT1H", "SHUTDOWN_TIMEOUT": 5}
    app.config.update({f"ASYNC_JOBS_{name}": value for name, value in {**quick, **settings}.items()})
    jobs.init_app(app, engine=engine, **(init or {}))
    made.append((jobs, app))
    return app


@contextmanager
def running(jobs: AsyncJobs, engine: Engine, init=None, **settings) -> Iterator[Flask]:
    """Run an application's dispatcher and scheduler, inside its context."""
    app = application(jobs, engine, init, **settings)
    with app.app_context():
        jobs.start()
        try:
            yield app
        finally:
            jobs.shutdown()
