"""Reports while the database takes nothing: nobody waits for long, and nothing is lost or written twice."""

import threading
import time
from datetime import timedelta

import pytest
from sqlalchemy import create_engine

from flask_async_jobs import JobRepository, StorageUnavailable
from flask_async_jobs.handlers import JobReporter
from flask_async_jobs.log import JobLog
from flask_async_jobs.pending import PATIENCE
from flask_async_jobs.reports import Reports
from tests.integration.reports.lines import MOST, lines
from tests.integration.rivals import transaction
from tests.integration.stores import LEASE, claimed
from tests.waiting import wait_until


@pytest.fixture
def outage(repository, monkeypatch):
    """Let every report meet a database that cannot be asked, until the event is cleared."""
    away = threading.Event()
    away.set()
    run = repository.database.run

    def fails(*arguments, **options):
        if away.is_set():
            raise StorageUnavailable("away")
        return run(*arguments, **options)

    monkeypatch.setattr(repository.database, "run", fails)
    together = repository.database.together

    def no_transaction(*arguments):
        if away.is_set():
            raise StorageUnavailable("away")
        return together(*arguments)

    monkeypatch.setattr(repository.database, "together", no_transaction)
    return away


def test_in_an_outage_nothing_is_raised_nobody_waits_and_lines_come_later(reporter, reports, claim, outage):
    begun = time.monotonic()
    for number in range(100):
        assert reporter.log(str(number))
        assert reporter.progress(number)
    assert time.monotonic() - begun < 1
    reporter.flush(0.1)
    outage.clear()
    reporter.flush(5)
    assert lines(reports, claim) == [str(number) for number in range(100)]
    assert reports.log.repository.find(claim.job_id).percent_complete == 99


def test_what_cannot_be_written_for_a_lease_is_left_out(repository, claim, outage, caplog):
    reports = Reports(JobLog(repository, MOST), timedelta(seconds=0.1))
    reporter = JobReporter(reports, claim.job_id, claim.execution_token, 1000)
    reporter.log("a")
    wait_until(lambda: "left out" in caplog.text, timeout=5)
    outage.clear()
    assert reporter.log("b")
    reporter.flush(5)
    assert lines(reports, claim) == ["b"]


def test_a_write_whose_answer_was_lost_is_not_made_again(reporter, reports, claim, monkeypatch):
    write, lost = reports.log.write, []

    def loses_its_answer(*arguments):
        taken = write(*arguments)
        if not lost:
            lost.append(taken)
            raise StorageUnavailable("the connection broke after the commit")
        return taken

    monkeypatch.setattr(reports.log, "write", loses_its_answer)
    assert reporter.log("a")
    assert reporter.log("b")
    reporter.flush(5)
    assert lost
    assert lines(reports, claim) == ["a", "b"]


def test_an_outcome_waits_for_lines_that_are_on_their_way(reporter, reports, claim, monkeypatch):
    append, slow = reports.log._append, threading.Event()

    def appends_slowly(*arguments):
        slow.wait(2 * PATIENCE)
        return append(*arguments)

    monkeypatch.setattr(reports.log, "_append", appends_slowly)
    assert reporter.log("a")
    assert reporter.log("b")
    assert reporter.complete()
    assert lines(reports, claim) == ["a", "b"]


def test_a_report_that_cannot_be_written_at_all_stops_nothing(reporter, reports, claim, monkeypatch, caplog):
    def breaks(job_id, execution_token, take, lease):
        take()
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(reports.log, "write", breaks)
        assert reporter.log("a")
    assert "left out" in caplog.text
    reporter.log("b")
    reporter.flush(5)
    assert lines(reports, claim) == ["b"]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_row_that_is_held_keeps_the_report_of_no_other_job(reports, repository, engine):
    held, other = claimed(repository), claimed(repository)
    with transaction(engine) as connection:
        assert repository.within(connection).cancel(held.job_id)
        reporter = JobReporter(reports, held.job_id, held.execution_token, 1000)
        begun = time.monotonic()
        assert reporter.log("kept")
        assert JobReporter(reports, other.job_id, other.execution_token, 1000).log("at once")
        assert time.monotonic() - begun < 1
        assert lines(reports, other) == ["at once"]
        connection.rollback()
    reporter.flush(5)
    assert lines(reports, held) == ["kept"]


def test_a_busy_sqlite_costs_a_handler_less_than_a_second(sqlite_url):
    engine = create_engine(sqlite_url)
    repository = JobRepository(engine)
    claim = claimed(repository)
    reports = Reports(JobLog(repository, MOST), LEASE)
    reporter = JobReporter(reports, claim.job_id, claim.execution_token, 1000)
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        begun = time.monotonic()
        assert reporter.progress(5)
        assert reporter.log("a")
        assert time.monotonic() - begun < 1
        connection.exec_driver_sql("ROLLBACK")
    reporter.flush(10)
    assert lines(reports, claim) == ["a"]
    engine.dispose()
