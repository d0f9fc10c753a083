"""Progress and log lines in passing: few statements, nothing lost, and the truth within half a second."""

import threading
import time
from datetime import timedelta
from uuid import uuid4

import pytest

from flask_async_jobs import AsyncJobs, JobError, JobStatus
from flask_async_jobs.handlers import JobReporter
from flask_async_jobs.pending import INTERVAL, PATIENCE
from flask_async_jobs.reports import MOST_ENDED
from tests.integration.counting import counted
from tests.integration.processes import running
from tests.integration.reports.lines import MOST, lines
from tests.integration.stores import LEASE, RULES, back_date, row
from tests.waiting import wait_until


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


def test_a_report_after_the_end_waits_once_and_not_for_each_statement(
    reporter, reports, repository, claim, monkeypatch
):
    writing, over = threading.Event(), threading.Event()
    progress, seconds = repository.progress, iter([0.6, 10])

    def slow(*arguments):
        writing.set()
        over.wait(next(seconds))
        return progress(*arguments)

    assert reporter.progress(1)
    monkeypatch.setattr(repository, "progress", slow)
    assert reporter.progress(2)
    assert writing.wait(10)
    reports.note_ended([claim.job_id])
    begun = time.monotonic()
    reporter.progress(3)
    taken = time.monotonic() - begun
    over.set()
    assert taken < 0.6 + PATIENCE - 0.1


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
