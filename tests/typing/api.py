"""What a type checker sees of the public API: this file is checked, and never run."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import assert_type
from uuid import UUID

import marshmallow
from flask import Flask, Response
from sqlalchemy import Engine
from sqlalchemy.orm import Session, scoped_session

from flask_async_jobs import (
    AsyncJobs,
    CancelResult,
    DefaultJobPolicy,
    Disposition,
    JobContext,
    JobEvent,
    JobPolicy,
    JobReporter,
    JobStatus,
    JobView,
    SubmittedBatch,
    SubmittedJob,
)


class Listing(marshmallow.Schema):
    """A payload."""


jobs = AsyncJobs()


@jobs.handler("plain")
def plain() -> None:
    """Take nothing."""


@jobs.handler(
    "review",
    payload_schema=Listing,
    max_attempts=3,
    retry_on=(TimeoutError, ConnectionError),
    backoff=timedelta(seconds=10),
    freshness="PT30M",
    coalesce=True,
    timeout=120,
    processing_timeout=None,
    atomic=False,
    result_url="/listings/{job_id}",
    redirect=True,
    max_active=100,
    require_idempotency_key=False,
)
def review(ctx: JobContext, listing: dict[str, object]) -> dict[str, object]:
    """Take the context and the payload, and give a result."""
    assert_type(ctx.job_id, UUID)
    assert_type(ctx.attempt, int)
    assert_type(ctx.owner, str | None)
    assert_type(ctx.progress(50), bool)
    assert_type(ctx.mark_effect_started(), bool)
    assert_type(ctx.is_cancelled, bool)
    assert_type(ctx.last_completed_at, datetime | None)
    return listing


jobs.register("located", lambda ctx: None, result_url=lambda job: f"/results/{job.job_id}")


@jobs.owner_loader
def owner() -> str | None:
    """Return who asks."""
    return None


def register(app: Flask, engine: Engine, policy: JobPolicy) -> None:
    """Pass each kind of argument that `init_app` takes."""
    jobs.init_app(app)
    jobs.init_app(app, engine=engine, policy=policy, clock=lambda: datetime.now(UTC))
    jobs.init_app(app, engine=lambda: engine)
    jobs.start(app)
    assert_type(jobs.shutdown("PT5S", app=app), bool)


def call(session: Session, registry: scoped_session[Session], app_policy: DefaultJobPolicy) -> None:
    """Use what the calls return as what they are declared to return."""
    submitted = jobs.submit("review", {"title": "Mouse"}, idempotency_key="k", owner="o", session=session)
    assert_type(submitted, SubmittedJob)
    assert_type(submitted.disposition, Disposition)
    assert_type(submitted.status_url, str | None)
    assert_type(jobs.accepted(submitted), Response)
    assert_type(jobs.submit_batch("review", [{"itemId": "1", "payload": {}}], session=registry), SubmittedBatch)
    job = jobs.get(submitted.job_id)
    assert_type(job, JobView | None)
    assert job is not None
    assert_type(job.status, JobStatus)
    assert_type(jobs.cancel(str(job.job_id), session=registry), CancelResult)
    assert_type(jobs.wait(job.job_id, 1.5), JobView | None)
    assert_type(jobs.watch(job.job_id), Iterator[JobEvent])
    assert_type(jobs.reporter(job.job_id), JobReporter)
    assert_type(jobs.last_completed_at("review", {"title": "Mouse"}), datetime | None)
    assert_type(jobs.recover(), int)
    assert_type(jobs.purge(timedelta(days=1)), int)
    checked: JobPolicy = app_policy
    assert_type(checked.retry_after(job), int)
