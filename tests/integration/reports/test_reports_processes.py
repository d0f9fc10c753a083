"""Reports where processes fork and end."""

import os
import signal
import subprocess
import sys
import threading

from sqlalchemy import create_engine

from flask_async_jobs import JobRepository
from flask_async_jobs.handlers import JobReporter
from flask_async_jobs.log import JobLog
from flask_async_jobs.reports import Reports
from tests.integration.reports.lines import MOST, lines
from tests.integration.stores import LEASE, claimed


def test_a_child_process_writes_its_own_reports_and_not_its_parents(postgres_url):
    engine = create_engine(postgres_url)
    repository = JobRepository(engine)
    claim = claimed(repository)
    reports = Reports(JobLog(repository, MOST), LEASE)
    reporter = JobReporter(reports, claim.job_id, claim.execution_token, 1000)
    for line in ("written", "kept"):
        reporter.log(line)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            engine.dispose(close=False)
            assert reporter.log("of the child")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    reporter.flush(5)
    assert sorted(lines(reports, claim)) == ["kept", "of the child", "written"]
    engine.dispose()


def test_where_no_thread_can_be_started_a_report_is_written_by_its_caller(reporter, reports, claim, monkeypatch):
    def refuses(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuses)
    assert reporter.log("a")
    for line in "bc":
        reporter.log(line)
    reporter.flush(5)
    assert lines(reports, claim) == [*"abc"]


SCRIPT = """
import sys
from datetime import timedelta
from uuid import uuid4
from uuid import UUID
from sqlalchemy import create_engine
from flask_async_jobs import JobRepository
from flask_async_jobs.handlers import JobReporter
from flask_async_jobs.log import JobLog
from flask_async_jobs.reports import MOST_ENDED, Reports

url, job_id, token = sys.argv[1:]
reports = Reports(JobLog(JobRepository(create_engine(url)), 1000), timedelta(seconds=30))
reporter = JobReporter(reports, UUID(job_id), UUID(token), 1000)
for line in "abc":
    assert reporter.log(line)
"""


def test_what_is_kept_is_written_before_the_interpreter_exits(reports, claim, database_url):
    arguments = [database_url, str(claim.job_id), str(claim.execution_token)]
    subprocess.run([sys.executable, "-c", SCRIPT, *arguments], check=True, timeout=30)
    assert lines(reports, claim) == [*"abc"]
