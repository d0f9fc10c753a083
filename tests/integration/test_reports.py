"""Progress and log lines in passing: few statements, nothing lost, and the truth within half a second."""

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import create_engine

from flask_async_jobs import AsyncJobs, JobError, JobRepository, JobStatus, StorageUnavailable
from flask_async_jobs.handlers import JobReporter
from flask_async_jobs.log import JobLog
from flask_async_jobs.pending import INTERVAL, PATIENCE
from flask_async_jobs.reports import MOST_ENDED, Reports
from tests.integration.counting import counted
from tests.integration.processes import running
from tests.integration.rivals import transaction
from tests.integration.stores import LEASE, RULES, back_date, claimed, row
from tests.waiting import wait_until

MOST = 100_000


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


def lines(reports, claim):
    return [entry.line for entry in reports.log.entries(claim.job_id, 0, MOST)]


def written(statements):
    """Return the writes of rows, as opposed to what begins and ends a transaction."""
    return [each for each in statements if each.lstrip().startswith(("UPDATE", "WITH"))]


def test_the_first_report_is_written_before_the_call_returns(reporter, reports, claim, engine):
    assert reporter.progress(5)
    assert row(engine, claim.job_id).percent_complete == 5
    other = JobReporter(reports, claim.job_id, claim.execution_token, 1000)
    assert other.log("a")
    assert lines(reports, claim) == ["a"]


def test_ten_thousand_reports_of_progress_are_a_few_statements_and_the_last_one_lands(reporter, claim, engine):
    begun = time.monotonic()
    with counted(engine) as statements:
        assert all([reporter.progress(number / 100) for number in range(10_000)] + [reporter.progress(99)])
        taken = time.monotonic() - begun
        wait_until(lambda: row(engine, claim.job_id).percent_complete == 99, timeout=taken + 1)
    assert len(written(statements)) <= 2 + taken / INTERVAL
    assert row(engine, claim.job_id).revision <= 4 + taken / INTERVAL


def test_a_chatty_handler_loses_no_line_and_costs_few_statements(reporter, reports, claim, engine):
    begun = time.monotonic()
    with counted(engine) as statements:
        for number in range(5_000):
            assert reporter.log(f"line {number}")
        taken = time.monotonic() - begun
        reporter.flush(10)
    assert lines(reports, claim) == [f"line {number}" for number in range(5_000)]
    assert len(written(statements)) <= 2 * (6 + taken / INTERVAL)


def test_progress_and_lines_of_half_a_second_are_one_write(reporter, reports, claim, engine):
    reporter.log("first")
    with counted(engine) as statements:
        for number in range(10):
            reporter.progress(number)
            reporter.log(str(number))
        assert statements == []
        wait_until(lambda: len(lines(reports, claim)) == 11, timeout=1)
    assert row(engine, claim.job_id).percent_complete == 9
    assert row(engine, claim.job_id).revision == 4
    assert reports.log.entries(claim.job_id, 10, 1)[0].at - reports.log.entries(claim.job_id, 0, 1)[0].at < (
        timedelta(seconds=1)
    )


@pytest.mark.parametrize("end", ["complete", "fail", "mark_effect_started"])
def test_what_is_kept_is_written_before_the_outcome(reporter, reports, claim, engine, end):
    reporter.log("a")
    for line in "bcd":
        reporter.log(line)
    reporter.progress(40)
    assert getattr(reporter, end)(*(["title"] if end == "fail" else []))
    assert lines(reports, claim) == [*"abcd"]
    assert row(engine, claim.job_id).percent_complete == (100 if end == "complete" else 40)
    ended = end != "mark_effect_started"
    assert reporter.log("e") is not ended
    assert reporter.progress(1) is not ended


def test_a_refusal_is_told_within_half_a_second_and_ever_after(reporter, reports, repository, claim):
    assert reporter.log("a")
    repository.cancel(claim.job_id)
    wait_until(lambda: not reporter.log("b"), timeout=INTERVAL + 0.3)
    with counted(repository.database.engine) as statements:
        assert [reporter.progress(1), reporter.log("c")] == [False, False]
    assert statements == []
    assert repository.refused.value == 1
    assert lines(reports, claim) == ["a"]


@pytest.mark.parametrize("end", ["cancel", "expire", "recover"])
def test_what_this_process_ended_is_refused_at_once(reporter, reports, repository, claim, engine, end):
    repository.ended = reports.note_ended
    assert [reporter.log("a"), reporter.progress(1)] == [True, True]
    match end:
        case "cancel":
            assert repository.cancel(claim.job_id)
        case "expire":
            assert repository.expire(claim, JobError.of("late"))
        case "recover":
            back_date(engine, claim.job_id, LEASE, "lease_expires_at")
            assert repository.recover([claim.job_id], RULES, LEASE, [])
    assert [reporter.progress(2), reporter.log("b")] == [False, False]
    assert lines(reports, claim) == ["a"]


def test_it_is_refused_at_once_also_while_an_earlier_report_is_being_written(
    reporter, reports, repository, claim, monkeypatch
):
    repository.ended = reports.note_ended
    written, go_on = threading.Event(), threading.Event()
    progress, has_ended = repository.progress, reports.has_ended

    def slow(*arguments):
        taken = progress(*arguments)
        written.set()
        assert go_on.wait(10)
        return taken

    def asked(job_id):
        go_on.set()
        return has_ended(job_id)

    assert reporter.progress(1)
    monkeypatch.setattr(repository, "progress", slow)
    assert reporter.progress(2)
    assert written.wait(10)
    repository.cancel(claim.job_id)
    monkeypatch.setattr(reports, "has_ended", asked)
    assert reporter.progress(3) is False


def test_only_so_many_ended_jobs_are_remembered(reports):
    ids = [uuid4() for _ in range(MOST_ENDED + 1)]
    reports.note_ended(ids)
    assert [reports.has_ended(each) for each in (ids[0], ids[1], ids[1], ids[-1])] == [False, True, False, True]


def test_after_a_pause_a_refusal_is_told_at_once(reporter, repository, claim):
    assert not JobReporter(reporter._reports, claim.job_id, claim.job_id, 1000).log("another token")
    repository.cancel(claim.job_id)
    assert not reporter.progress(1)


def test_a_job_that_logs_too_much_fails_and_is_told(reporter, reports, repository, claim):
    assert reporter.log("a" * (MOST - 1))
    for _ in range(3):
        reporter.log("b" * 10 * MOST)  # of which no more is kept than tells that it is too long
    assert sum(map(len, next(iter(reporter._pending.values()))._lines)) <= MOST + 1
    wait_until(lambda: not reporter.log("c"), timeout=1)
    job = repository.find(claim.job_id)
    assert (job.status, job.error.code, job.log_lines) == (JobStatus.FAILED, "output-limit-exceeded", 1)


def test_text_that_no_database_holds_is_replaced(reporter, reports, claim):
    for text in ("a\0b", "\ud800", "x\r\ny\u2028", "", "😀"):
        reporter.log(text)
    reporter.flush()
    assert lines(reports, claim) == ["a\ufffdb", "\ufffd", "x\r\ny\u2028", "", "😀"]


def test_several_threads_share_a_reporter(reporter, reports, claim):
    def chatter(index):
        for number in range(200):
            assert reporter.log(f"{index}:{number}")

    threads = [threading.Thread(target=chatter, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    reporter.flush(5)
    found = lines(reports, claim)
    assert len(found) == 800
    for index in range(4):
        own = [line for line in found if line.startswith(f"{index}:")]
        assert own == [f"{index}:{number}" for number in range(200)]


def test_a_handler_that_reports_nothing_costs_nothing(engine):
    jobs = AsyncJobs()
    jobs.register("silent", lambda ctx: None)
    with running(jobs, engine) as app:
        submitted = jobs.submit("silent")
        wait_until(lambda: jobs.get(submitted.job_id).status is JobStatus.COMPLETED)
        assert app.extensions["async_jobs"].reports._thread is None


# When the database takes nothing


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


# Processes


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
