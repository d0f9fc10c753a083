"""A job store for tests, and rows that are written as somebody at a SQL console would."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from sqlalchemy import Engine, text, update

from flask_async_jobs import JobRepository
from flask_async_jobs.models import jobs_table
from flask_async_jobs.records import NewJob, TypeRules

LEASE = timedelta(seconds=30)
MINUTE = timedelta(minutes=1)
RULES = [
    TypeRules("a"),
    TypeRules("thrice", max_attempts=3),
    TypeRules("detached", detached=True),
    TypeRules("impatient", processing_timeout=timedelta(seconds=10)),
]


def new_job(type="a", **values):
    """Return a submission without payload."""
    defaults = {"owner": "", "work_key": f"work of {type}"[:64], "fingerprint": "f"}
    return NewJob(uuid4(), type, **{**defaults, **values})


def claimed(repository: JobRepository, type="a", **values):
    """Submit a job and claim it."""
    repository.insert(new_job(type, **values))
    (claim,) = repository.claim(RULES, 1, LEASE)
    return claim


def edit(engine: Engine, job_id, **values):
    """Change a row by hand."""
    jobs = jobs_table()
    with engine.begin() as connection:
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(**values))


def back_date(engine: Engine, job_id, by: timedelta, *columns: str):
    """Move instants of a row into the past."""
    moment = datetime.now(UTC) - by
    edit(engine, job_id, **dict.fromkeys(columns or ("created_at", "last_updated_at", "available_at"), moment))


def row(engine: Engine, job_id):
    """Return a row with every column."""
    jobs = jobs_table()
    with engine.connect() as connection:
        return connection.execute(jobs.select().where(jobs.c.id == job_id)).one()


def count(engine: Engine) -> int:
    """Return how many jobs there are."""
    with engine.connect() as connection:
        return connection.execute(text("SELECT count(*) FROM async_jobs")).scalar_one()
