"""A job with a log, on both databases, and an application that serves it."""

import pytest

from flask_async_jobs import JobRepository
from flask_async_jobs.log import JobLog
from tests.integration.apps import TestJobs, serving
from tests.integration.log_http.requests import LINES, write
from tests.integration.stores import claimed


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


@pytest.fixture
def log(repository):
    return JobLog(repository, 1_000_000)


@pytest.fixture
def site(engine):
    with serving(TestJobs(), engine, AUTO_START=False) as site:
        yield site


@pytest.fixture
def claim(repository, log):
    """The claim of a job with six lines."""
    claim = claimed(repository)
    write(log, claim, *LINES)
    return claim


@pytest.fixture
def ended(repository, claim):
    """The id of a job that has six lines and is COMPLETED."""
    repository.complete(claim.job_id, claim.execution_token)
    return claim.job_id
