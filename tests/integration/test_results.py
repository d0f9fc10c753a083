"""The small result of a job, over HTTP: as it was stored, and only when there is one."""

from decimal import Decimal

import pytest

from flask_async_jobs import AsyncJobs, JobRepository, JobStatus
from tests.integration.processes import running
from tests.integration.stores import new_job
from tests.waiting import wait_until

EXACT = {"price": Decimal("45.00"), "big": 2**53 + 1, "text": "ü", "huge": 10**400}


@pytest.fixture
def jobs():
    jobs = AsyncJobs()
    jobs.register("exact", lambda: EXACT)
    jobs.register("none", lambda: None)
    return jobs


def completed(jobs, type):
    submitted = jobs.submit(type)
    wait_until(lambda: jobs.get(submitted.job_id).status is JobStatus.COMPLETED)
    return submitted.job_id


def test_a_result_keeps_its_decimal_text(jobs, engine):
    with running(jobs, engine) as app:
        job_id = completed(jobs, "exact")
        response = app.test_client().get(f"/jobs/{job_id}/result")
        assert (response.status_code, response.mimetype) == (200, "application/json")
        assert '"price":45.00' in response.text
        assert jobs.get(job_id).result == {
            "price": Decimal("45.00"),
            "big": 2**53 + 1,
            "text": "ü",
            "huge": 10**400,
        }


def test_a_job_without_a_result_is_204(jobs, engine):
    with running(jobs, engine) as app:
        response = app.test_client().get(f"/jobs/{completed(jobs, 'none')}/result")
        assert (response.status_code, response.data, response.headers["Cache-Control"]) == (204, b"", "no-store")


def test_a_job_that_is_not_completed_is_409(jobs, engine):
    repository = JobRepository(engine)
    with running(jobs, engine, PROCESSING_ENABLED=False) as app:
        job = repository.insert(new_job("none"))
        response = app.test_client().get(f"/jobs/{job.job_id}/result")
        assert (response.status_code, response.json["jobStatus"]) == (409, "PENDING")
        assert response.json["type"].endswith(":not-completed")
