"""An attempt that reports, on both databases."""

import pytest

from flask_async_jobs import JobRepository
from flask_async_jobs.handlers import JobReporter
from flask_async_jobs.log import JobLog
from flask_async_jobs.reports import Reports
from tests.integration.reports.lines import MOST
from tests.integration.stores import LEASE, claimed


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


@pytest.fixture
def reports(repository):
    reports = Reports(JobLog(repository, MOST), LEASE)
    yield reports
    reports.flush()


@pytest.fixture
def claim(repository):
    return claimed(repository)


@pytest.fixture
def reporter(reports, claim):
    return JobReporter(reports, claim.job_id, claim.execution_token, 1000)
