"""Applications for tests: the library in Flask, on the engine of a test, and a client that speaks to it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from flask import Flask, request
from marshmallow import Schema, fields
from sqlalchemy import Engine
from werkzeug.test import TestResponse

from flask_async_jobs import AsyncJobs, JobContext, JobFailed
from tests.waiting import wait_until

PROBLEM = "application/problem+json"
URN = "urn:flask-async-jobs:problem:"
START = datetime(2026, 6, 3, 22, 0, 0, tzinfo=UTC)
UNKNOWN_ID = "3f0b8a54-6f0e-4d0c-9a57-0a8f4f6f2c11"


class Clock:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def tick(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class ListingSchema(Schema):
    """What `listing` takes."""

    value = fields.Raw(required=True, allow_none=True)
    rooms = fields.Integer(
        strict=True,
    )


class TestJobs(AsyncJobs):
    """An `AsyncJobs` with one handler of each kind, which remembers the contexts of its attempts by job."""

    __test__ = False

    def __init__(self, *, owners: bool = False) -> None:
        super().__init__()
        self.contexts: dict[str, JobContext] = {}
        self.register("quick", quick)
        self.register("other", lambda: None)
        self.register("boom", boom)
        self.register("refused", refused)
        self.register("blank", blank)
        self.register("listing", lambda ctx, payload: None, payload_schema=ListingSchema)
        self.register("remote", self.remember, detached=True)
        self.register("keyed", lambda: None, require_idempotency_key=True)
        self.register("single", self.remember, detached=True, coalesce=True)
        if owners:
            self.owner_loader(lambda: request.headers.get("X-Owner"))

    def remember(self, ctx: JobContext) -> None:
        """Hand the work to another process."""
        self.contexts[str(ctx.job_id)] = ctx


def quick() -> None:
    """Do nothing, at once.

    Nothing at all.
    """


def boom() -> None:
    """Fail in a way that nobody planned."""
    raise RuntimeError("the secret text")


def refused() -> None:
    """Fail as planned."""
    raise JobFailed("Ledger does not balance", "Two entries differ.", "ledger")


def blank() -> None:
    """Fail without a title."""
    raise JobFailed("  ")


@dataclass
class Site:
    """An application with the library, and a client of it."""

    app: Flask
    jobs: AsyncJobs
    headers: dict[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, **options: Any) -> TestResponse:
        headers = {**self.headers, **options.pop("headers", {})}
        return self.app.test_client().open(path, method=method, headers=headers, buffered=True, **options)

    def get(self, path: str, **options: Any) -> TestResponse:
        return self.ask("GET", path, **options)

    def post(
        self, type: str, body: str | bytes | None = None, *, key: str | None = None, **headers: str
    ) -> TestResponse:
        """Submit; further headers are given as `cache_control="no-cache"`."""
        return self._post(f"/jobs/{type}", body, key, headers)

    def batch(
        self, type: str, body: str | bytes | None = None, *, key: str | None = None, **headers: str
    ) -> TestResponse:
        """Submit a batch; see `post`."""
        return self._post(f"/batches/{type}", body, key, headers)

    def _post(
        self, path: str, body: str | bytes | None, key: str | None, headers: Mapping[str, str]
    ) -> TestResponse:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            sent["Idempotency-Key"] = key
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        return self.ask("POST", path, headers=sent, data=body)

    def submit(self, type: str = "quick", body: str | None = None, **options: Any) -> str:
        """Submit what must be accepted, and return the id of the job."""
        response = self.post(type, body, **options)
        assert response.status_code == 202, response.text
        return str(response.json["jobId"])

    def status(self, job_id: str) -> TestResponse:
        return self.get(f"/jobs/{job_id}/status")

    def ended(self, job_id: str) -> TestResponse:
        """Wait until the job is terminal and return its status."""

        def terminal() -> TestResponse | None:
            response = self.status(job_id)
            return response if "completedAt" in response.json else None

        return wait_until(terminal)

    def context(self, job_id: str) -> JobContext:
        """Wait until a job of a detached type was started and return what its handler got."""
        assert isinstance(self.jobs, TestJobs)
        return wait_until(lambda: self.jobs.contexts.get(job_id))

    def run(self, type: str) -> TestResponse:
        """Submit, wait for the end and return the status."""
        return self.ended(self.submit(type))

    def count(self, engine: Engine) -> int:
        """Return how many jobs are stored."""
        with engine.connect() as connection:
            return int(connection.exec_driver_sql("SELECT count(*) FROM async_jobs").scalar_one())


@contextmanager
def serving(
    jobs: AsyncJobs,
    engine: Any,
    *,
    app: Flask | None = None,
    run: bool = False,
    init: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Iterator[Site]:
    """Register `jobs` with an application and, if `run`, run its handlers until the end of the block.

    Args:
        jobs: The library with its handlers.
        engine: The database, as `init_app` takes it.
        app: The application; a new one by default.
        run: Whether this process runs jobs; otherwise they stay PENDING.
        init: More arguments of `init_app`.
        settings: Settings without their prefix.
    """
    app = app or new_app()
    app.config["ASYNC_JOBS_PROCESSING_POLL_INTERVAL"] = 0.05
    app.config["ASYNC_JOBS_PROCESSING_CONCURRENCY_LIMIT"] = 4
    app.config.update({f"ASYNC_JOBS_{name}": value for name, value in settings.items()})
    jobs.init_app(app, engine=engine, **(init or {}))
    try:
        if run:
            jobs.start(app)
        yield Site(app, jobs)
    finally:
        jobs.shutdown(app=app)


def new_app(**config: Any) -> Flask:
    """Return an application under test that does not start by itself."""
    app = Flask("consumer")
    app.config.update({"TESTING": True, **config})
    return app


def assert_problem(response: TestResponse, status: int, slug: str | None = None) -> dict[str, Any]:
    """Check everything that is common to problems and return the document."""
    assert response.status_code == status, response.text
    assert response.content_type == PROBLEM
    assert response.headers["Cache-Control"] == "no-store"
    problem: dict[str, Any] = response.get_json(force=True)
    assert {"type", "title", "status", "instance"} <= problem.keys()
    assert problem["status"] == status
    assert problem["title"].strip()
    assert (problem["type"] == URN + slug) if slug else (problem["type"].startswith((URN, "about:blank")))
    assert problem["instance"].startswith(("/", "http://"))
    if status in (429, 503):
        assert int(response.headers.get("Retry-After", 0)) >= 1, "a whole number of seconds"
    else:
        assert "Retry-After" not in response.headers
    return problem


def is_uuid(text: str) -> bool:
    """Return whether `text` is a random UUID in its canonical form."""
    return str(UUID(text)) == text and UUID(text).version == 4
