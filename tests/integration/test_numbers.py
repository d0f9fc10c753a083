"""Numbers of any size and form go through a job unchanged: request, row, handler, result, answer."""

from decimal import Decimal

import pytest
from marshmallow import Schema, fields

from flask_async_jobs import AsyncJobs, JobStatus
from tests.integration.processes import running
from tests.integration.stores import row
from tests.waiting import wait_until

BIG = 10**400
EXACT = [
    ("45.00", Decimal("45.00")),
    ("100.00", Decimal("100.00")),
    ("1200.00", Decimal("1200.00")),
    ("19.99", Decimal("19.99")),
    ("0.1", Decimal("0.1")),
    ("-0.0", Decimal("-0.0")),
    ("1e400", Decimal("1e400")),
    ("1.50E-7", Decimal("1.50E-7")),
    (str(2**53 + 1), 2**53 + 1),
    (str(2**63), 2**63),
    (str(-(2**64)), -(2**64)),
    (str(BIG), BIG),
]
TOO_LONG = "1" * 5_000


class Numbers(Schema):
    value = fields.Raw(required=True)


@pytest.fixture
def jobs():
    return AsyncJobs()


@pytest.fixture
def seen(jobs):
    """What the handler got; it returns it."""
    seen = []

    @jobs.handler("echo", payload_schema=Numbers)
    def echo(ctx, payload):
        seen.append(payload["value"])
        return payload["value"]

    return seen


def post(app, body):
    return app.test_client().post("/jobs/echo", data=body, content_type="application/json")


def test_numbers_are_the_same_in_the_request_the_handler_the_result_and_the_answer(jobs, engine, seen):
    written = f"[{','.join(text for text, _ in EXACT)}]"
    expected = [value for _, value in EXACT]
    with running(jobs, engine) as app:
        job_id = post(app, f'{{"value": {written}}}').json["jobId"]
        wait_until(lambda: jobs.get(job_id).status is JobStatus.COMPLETED)
        assert f'"value":{written}' in row(engine, jobs.get(job_id).job_id).payload.replace(" ", "")
        for values in (seen[0], jobs.get(job_id).result):
            assert values == expected
            assert [str(value) for value in values] == [str(value) for value in expected]
            assert [type(value) for value in values] == [type(value) for value in expected]
        answer = app.test_client().get(f"/jobs/{job_id}/result").text
        for sent, received in zip(written[1:-1].split(","), answer.strip("[]\n").split(","), strict=True):
            assert Decimal(sent).as_tuple() == Decimal(received).as_tuple(), sent
        for plain in ("45.00", "100.00", "1200.00", "19.99", str(2**53 + 1), str(BIG)):
            assert plain in answer


def test_floats_are_returned_with_every_digit(jobs, engine):
    jobs.register("sum", lambda: [0.1 + 0.2, 1e300, -0.0])
    with running(jobs, engine) as app:
        job_id = jobs.submit("sum").job_id
        wait_until(lambda: jobs.get(job_id).status is JobStatus.COMPLETED)
        assert app.test_client().get(f"/jobs/{job_id}/result").json == [0.30000000000000004, 1e300, -0.0]
        assert [str(float(value)) for value in jobs.get(job_id).result] == ["0.30000000000000004", "1e+300", "-0.0"]


def test_a_number_that_is_too_long_is_refused_in_a_request_and_as_a_result(jobs, engine, seen):
    jobs.register("long", lambda: 10**5_000)
    jobs.register("wide", lambda: Decimal("1e999999999"))
    with running(jobs, engine, RESULT_MAX_BYTES=100_000) as app:
        for body in (f'{{"value": {TOO_LONG}}}', f'{{"value": -{TOO_LONG}.5}}', '{"value": 1e999999999}'):
            response = post(app, body)
            assert (response.status_code, response.json["type"].rpartition(":")[2]) == (400, "malformed-request")
        for type in ("long", "wide"):
            job = jobs.wait(jobs.submit(type).job_id, 10)
            assert (job.status, job.error.code) == (JobStatus.FAILED, "result-not-storable")
    assert seen == []
