"""What handlers, clients and people at a console should not do, and what becomes of the others then."""

import io
from uuid import uuid4

import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from marshmallow import Schema, ValidationError, fields
from sqlalchemy import create_engine, text

from flask_async_jobs import AsyncJobs, JobFailed, JobRepository, JobStatus, RetryLater
from tests.integration.processes import application, running
from tests.integration.stores import LEASE, RULES, edit, new_job
from tests.waiting import wait_until


@pytest.fixture
def jobs():
    return AsyncJobs()


def ended(jobs, submitted, timeout=10.0):
    return wait_until(lambda: (job := jobs.get(submitted.job_id)).status.is_terminal and job, timeout=timeout)


class BareFailure(JobFailed):
    def __init__(self):
        pass


class BareRetry(RetryLater):
    def __init__(self):
        pass


class EvilText:
    def __str__(self):
        raise KeyboardInterrupt


@pytest.mark.parametrize("error", [BareFailure(), JobFailed(EvilText()), JobFailed("x", EvilText(), EvilText())])
def test_a_failure_that_cannot_be_told_is_a_failure_all_the_same(jobs, engine, error):
    def handler():
        raise error

    jobs.register("evil", handler)
    with running(jobs, engine):
        assert ended(jobs, jobs.submit("evil")).status is JobStatus.FAILED


def test_a_retry_without_a_delay_comes_again_at_once(jobs, engine):
    calls = []

    def handler():
        calls.append(1)
        if len(calls) < 3:
            raise BareRetry

    jobs.register("again", handler)
    with running(jobs, engine):
        assert ended(jobs, jobs.submit("again")).status is JobStatus.COMPLETED


def nested(depth):
    value = []
    for _ in range(depth):
        value = [value, value]
    return value


@pytest.mark.parametrize("value", [nested(60), [1] * 5_000_000], ids=["shared", "long"])
def test_an_endless_result_is_given_up_at_its_limit(jobs, engine, value):
    jobs.register("endless", lambda: value)
    with running(jobs, engine):
        job = ended(jobs, jobs.submit("endless"), timeout=2)
    assert job.error.code == "result-too-large"


@pytest.mark.parametrize("column", ["attempt", "revision"])
def test_a_row_at_the_end_of_its_numbers_does_not_stop_the_others(engine, column):
    repository = JobRepository(engine)
    stuck, other = repository.insert(new_job()), repository.insert(new_job())
    edit(engine, stuck.job_id, **{column: 2**31 - 1})
    assert [claim.job_id for claim in repository.claim(RULES, 5, LEASE)] == [other.job_id]


def test_an_instant_beyond_any_calendar_does_not_lose_a_claim(postgres_url):
    engine = create_engine(postgres_url)
    repository = JobRepository(engine)
    odd, other = repository.insert(new_job()), repository.insert(new_job())
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE async_jobs SET available_at = '-infinity' WHERE id = :id"), {"id": odd.job_id}
        )
    assert [claim.job_id for claim in repository.claim(RULES, 5, LEASE)] == [odd.job_id, other.job_id]
    engine.dispose()


@pytest.mark.parametrize(
    "spelling", [str, lambda id: id.hex, lambda id: str(id).upper(), lambda id: id.hex.upper()]
)
def test_a_row_from_a_console_runs_however_its_id_is_spelled(jobs, engine, spelling):
    jobs.register("quick", lambda: None)
    job_id = uuid4()
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO async_jobs (id, type, status, created_at, last_updated_at) "
                "VALUES (:id, 'quick', 'PENDING', '2026-01-01 00:00:00', '2026-01-01 00:00:00')"
            ),
            {"id": spelling(job_id)},
        )
    with running(jobs, engine):
        wait_until(lambda: jobs.get(job_id).status is JobStatus.COMPLETED)


def test_a_row_without_a_uuid_stops_neither_claims_nor_recovery(jobs, sqlite_url):
    engine = create_engine(sqlite_url)
    jobs.register("a", lambda: None)
    with engine.begin() as connection:
        for id, status, token in (("job-1", "PENDING", None), ("job-2", "PROCESSING", str(uuid4()))):
            connection.execute(
                text(
                    "INSERT INTO async_jobs (id, type, status, created_at, last_updated_at, execution_token) "
                    "VALUES (:id, 'a', :status, '2020-01-01 00:00:00', '2020-01-01 00:00:00', :token)"
                ),
                {"id": id, "status": status, "token": token},
            )
    with running(jobs, engine):
        assert ended(jobs, jobs.submit("a")).status is JobStatus.COMPLETED
        assert jobs.recover() == 0
    engine.dispose()


class Odd(Schema):
    moment = fields.DateTime(format="timestamp")


class Telling(Schema):
    value = fields.Integer(required=True, strict=True)

    def handle_error(self, error, data, **kwargs):
        raise ValidationError({"got": data, ("a", 1): {1, 2}, "text": "\ud800"})


@pytest.mark.parametrize(
    ("type", "body"), [("odd", '{"moment": 1' + "0" * 400 + "}"), ("telling", '{"value": 1.50}')]
)
def test_a_schema_that_says_odd_things_gives_a_422(jobs, engine, type, body):
    jobs.register("odd", lambda ctx, payload: None, payload_schema=Odd)
    jobs.register("telling", lambda ctx, payload: None, payload_schema=Telling)
    client = application(jobs, engine, AUTO_START=False).test_client()
    response = client.post(f"/jobs/{type}", data=body, content_type="application/json")
    assert (response.status_code, response.mimetype) == (422, "application/problem+json")
    assert response.json["errors"]


def test_a_body_without_a_length_is_not_cut_at_the_limit(jobs, engine):
    jobs.register("quick", lambda: None)
    client = application(jobs, engine, AUTO_START=False, PAYLOAD_MAX_BYTES=100).test_client()
    body = b"{}" + b" " * 200
    response = client.post(
        "/jobs/quick",
        input_stream=io.BytesIO(body),
        content_type="application/json",
        headers={"Transfer-Encoding": "chunked"},
        environ_overrides={"wsgi.input_terminated": True},
    )
    assert response.status_code == 413


class Broken(io.BytesIO):
    """A body whose coding is broken, as a server tells it."""

    def read(self, size=-1):
        raise EOFError("a chunk has no size")

    readinto = read


@pytest.mark.parametrize("path", ["/jobs/quick", "/batches/quick"])
def test_a_body_that_a_server_cannot_read_is_the_clients_fault(jobs, engine, path):
    jobs.register("quick", lambda: None)
    client = application(jobs, engine, AUTO_START=False).test_client()
    response = client.post(
        path,
        input_stream=Broken(),
        content_type="application/json",
        headers={"Transfer-Encoding": "chunked", "Idempotency-Key": "k"},
        environ_overrides={"wsgi.input_terminated": True},
    )
    assert (response.status_code, response.mimetype) == (400, "application/problem+json")
    assert response.json["type"].endswith(":malformed-request")
    assert "chunk" not in response.text


def test_an_atomic_handler_may_complete_early_and_keeps_its_rows(jobs, engine):
    db = SQLAlchemy()
    app = Flask("bank")
    app.config.update(
        SQLALCHEMY_DATABASE_URI=engine.url.render_as_string(hide_password=False),
        ASYNC_JOBS_PROCESSING_POLL_INTERVAL=0.1,
        ASYNC_JOBS_PROCESSING_CONCURRENCY_LIMIT=2,
    )
    db.init_app(app)

    def handler(ctx):
        db.session.execute(text("INSERT INTO effects VALUES (1)"))
        assert ctx.complete({"n": 1})

    jobs.register("book", handler, atomic=True)
    jobs.init_app(app)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE effects (n INTEGER)"))
    with app.app_context():
        jobs.start()
        job = ended(jobs, jobs.submit("book"))
        jobs.shutdown()
        assert (job.status, job.result) == (JobStatus.COMPLETED, {"n": 1})
        db.engine.dispose()
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM effects")).scalar_one() == 1


def test_a_dispatcher_that_cannot_start_is_tried_again(jobs, engine):
    class Fussy:
        def __init__(self):
            self.starts = 0

        def start(self):
            self.starts += 1
            if self.starts == 1:
                raise OSError("not now")

        def wake(self):
            """Do nothing."""

        def stop(self, timeout):
            return True

        running = ()

    dispatcher = Fussy()
    app = application(jobs, engine, {"dispatcher": dispatcher})
    with pytest.raises(OSError, match="not now"):
        jobs.start(app)
    jobs.start(app)
    assert dispatcher.starts == 2
