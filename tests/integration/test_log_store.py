"""The log in the store: who may write, how lines are numbered, and where it ends."""

import threading
from uuid import uuid4

import pytest
from sqlalchemy import text

from flask_async_jobs import JobError, JobRepository
from flask_async_jobs.batch_repository import BatchRepository
from flask_async_jobs.log import JobLog, Written
from flask_async_jobs.models import batches_table
from flask_async_jobs.records import Report
from tests.integration.apps import START
from tests.integration.counting import counted
from tests.integration.rivals import at_once, transaction
from tests.integration.stores import LEASE, MINUTE, RULES, back_date, claimed, edit, new_job, row

MOST = 1_000


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


@pytest.fixture
def log(repository):
    return JobLog(repository, MOST)


def write(log, claim, *lines, percent=None, token=True):
    """Write a report of the attempt that a claim is about."""
    own = claim.execution_token if token else None
    return log.write(claim.job_id, own, lambda: Report(percent, lines), LEASE)


def lines(log, claim):
    return [entry.line for entry in log.entries(claim.job_id, 0, MOST)]


@pytest.mark.parametrize("token", [True, False])
def test_lines_are_numbered_from_one_and_counted_in_the_row(log, repository, engine, token):
    claim = claimed(repository)
    before = row(engine, claim.job_id)
    assert write(log, claim, "a", "é", "", token=token) is Written.TAKEN
    assert write(log, claim, "b\n\nc", percent=7, token=token) is Written.TAKEN
    assert [(entry.number, entry.line) for entry in log.entries(claim.job_id, 1, 2)] == [(2, "é"), (3, "")]
    after = row(engine, claim.job_id)
    assert (after.log_lines, after.log_bytes, after.percent_complete) == (4, 1 + 2 + 1 + 4, 7)
    assert after.revision == before.revision + 2
    assert after.lease_expires_at > before.lease_expires_at
    assert log.entries(claim.job_id, 3, 9)[0].at == after.last_updated_at
    assert repository.find(claim.job_id).log_lines == 4


def test_a_report_is_one_statement_or_a_transaction_of_two(log, repository, engine):
    claim = claimed(repository)
    with counted(engine) as statements:
        write(log, claim, *"abc")
    assert len(statements) == (3 if engine.dialect.name == "sqlite" else 1)  # one of them takes the turn


def test_the_instant_of_a_line_is_the_clocks(engine):
    repository = JobRepository(engine, clock=lambda: START)
    claim = claimed(repository)
    log = JobLog(repository, MOST)
    write(log, claim, "a")
    assert [entry.at for entry in log.entries(claim.job_id, 0, 1)] == [START]


@pytest.mark.parametrize("end", ["complete", "fail", "cancel", "retry", "recover"])
def test_an_attempt_that_is_not_the_running_one_writes_no_line(log, repository, engine, end):
    claim = claimed(repository, "thrice")
    assert write(log, claim, "before") is Written.TAKEN
    match end:
        case "complete":
            repository.complete(claim.job_id, claim.execution_token)
        case "fail":
            repository.fail(claim.job_id, claim.execution_token, JobError.of("t"))
        case "cancel":
            repository.cancel(claim.job_id)
        case "retry":
            repository.retry(claim.job_id, claim.execution_token, -MINUTE)
            (again,) = repository.claim(RULES, 1, LEASE)
        case "recover":
            back_date(engine, claim.job_id, MINUTE, "lease_expires_at")
            repository.recover([claim.job_id], RULES, MINUTE, [])
            (again,) = repository.claim(RULES, 1, LEASE)
    refused, standing = repository.refused.value, row(engine, claim.job_id)
    assert write(log, claim, "after", percent=99) is Written.REFUSED
    assert row(engine, claim.job_id) == standing
    assert repository.refused.value == refused + 1
    if end in ("retry", "recover"):
        assert write(log, again, "again") is Written.TAKEN
        assert [(entry.number, entry.line) for entry in log.entries(claim.job_id, 0, 9)] == [
            (1, "before"),
            (2, "again"),
        ]


def test_an_unknown_job_has_no_log(log, repository):
    claim = claimed(repository)
    stranger = new_job().job_id
    assert log.write(stranger, claim.execution_token, lambda: Report(None, ["x"]), LEASE) is Written.REFUSED
    assert log.write(stranger, None, lambda: Report(None, ["x"]), LEASE) is Written.REFUSED
    assert log.entries(stranger, 0, 9) == []


def test_nothing_to_write_changes_nothing(log, repository, engine):
    claim = claimed(repository)
    before = row(engine, claim.job_id)
    assert log.write(claim.job_id, claim.execution_token, lambda: None, LEASE) is Written.TAKEN
    assert row(engine, claim.job_id) == before


def test_two_writers_get_different_numbers_and_leave_no_gap(log, repository):
    claim = claimed(repository)

    def chatter(index):
        for number in range(20):
            while write(log, claim, f"{index}:{number}", f"{index}:{number}+") is not Written.TAKEN:
                pass

    at_once(3, chatter)
    entries = log.entries(claim.job_id, 0, MOST)
    assert [entry.number for entry in entries] == list(range(1, 121))
    for index in range(3):
        own = [entry.line for entry in entries if entry.line.startswith(f"{index}:")]
        assert own == [each for number in range(20) for each in (f"{index}:{number}", f"{index}:{number}+")]


def test_a_log_may_be_as_long_as_the_limit_and_no_longer(log, repository, engine):
    claim = claimed(repository)
    assert write(log, claim, "x" * (MOST - 4), "é", "y", "") is Written.TAKEN
    assert write(log, claim, "") is Written.REFUSED
    job = repository.find(claim.job_id)
    assert (job.status, job.error.title, job.error.code) == (
        "FAILED",
        "Output limit exceeded",
        "output-limit-exceeded",
    )
    assert job.log_lines == 4
    assert write(log, claim, "more") is Written.REFUSED
    assert repository.complete(claim.job_id, claim.execution_token) is None


def test_of_lines_that_are_too_long_together_those_that_fit_are_kept(log, repository, engine):
    claim = claimed(repository)
    assert write(log, claim, "a" * 400, "b" * 400, "c" * 400, "d", percent=9) is Written.REFUSED
    assert [line[0] for line in lines(log, claim)] == ["a", "b"]
    standing = row(engine, claim.job_id)
    assert (standing.status, standing.log_lines, standing.log_bytes) == ("FAILED", 2, 800)


def test_counts_that_were_set_by_hand_to_the_largest_number_do_not_overflow(log, repository, engine):
    claim = claimed(repository)
    edit(engine, claim.job_id, log_bytes=2**31 - 1)
    assert write(log, claim, "a") is Written.REFUSED
    assert row(engine, claim.job_id).status == "FAILED"


def test_a_report_in_a_transaction_stands_if_that_is_committed(log, repository, engine):
    claim = claimed(repository)
    for commit in (False, True):
        with transaction(engine) as connection:
            report = Report(5, ["a", "b"])
            written = log.write_within(connection, claim.job_id, claim.execution_token, report, LEASE)
            assert written is Written.TAKEN
            connection.commit() if commit else connection.rollback()
        assert lines(log, claim) == (["a", "b"] if commit else [])


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_what_a_writer_has_is_asked_for_when_it_is_its_turn(log, repository, engine):
    claim = claimed(repository)
    kept, began = ["a"], threading.Event()

    def take():
        return Report(None, list(kept))

    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        worker = threading.Thread(
            target=lambda: (began.set(), log.write(claim.job_id, claim.execution_token, take, LEASE))
        )
        worker.start()
        began.wait(10)
        kept.append("b")
        connection.exec_driver_sql("ROLLBACK")
    worker.join(10)
    assert lines(log, claim) == ["a", "b"]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_row_that_somebody_holds_is_told_and_not_waited_for(log, repository, engine):
    claim = claimed(repository)
    with transaction(engine) as connection:
        assert repository.within(connection).cancel(claim.job_id)
        assert write(log, claim, "a") is Written.LATER
        assert repository.progress(claim.job_id, claim.execution_token, 5, LEASE) is None
        connection.rollback()
    assert write(log, claim, "a") is Written.TAKEN
    assert repository.progress(claim.job_id, claim.execution_token, 5, LEASE) is True


def test_what_was_written_in_spite_of_an_error_is_recognised(log, repository):
    claim = claimed(repository)
    write(log, claim, "a", "b", "a")
    assert log.ends_with(claim.job_id, ["b", "a"], 1)
    assert not log.ends_with(claim.job_id, ["b", "a"], 2)
    assert not log.ends_with(claim.job_id, ["a", "b"], 0)
    assert not log.ends_with(new_job().job_id, ["a"], 0)


def test_purge_removes_the_lines_with_their_job(log, repository, engine):
    kept, gone = claimed(repository), claimed(repository)
    for claim in (kept, gone):
        write(log, claim, "a", "b")
    repository.complete(gone.job_id, gone.execution_token)
    back_date(engine, gone.job_id, 10 * MINUTE, "completed_at", "last_updated_at")
    assert repository.purge(RULES, MINUTE, 10) == 1
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM async_job_log")).scalar_one() == 2
    assert lines(log, kept) == ["a", "b"]


def test_purge_of_a_batch_removes_the_lines_of_its_items(log, repository, engine):
    claim, batch = claimed(repository), uuid4()
    write(log, claim, "a")
    with engine.begin() as connection:
        values = {"id": batch, "type": "a", "fingerprint": "f", "created_at": START}
        connection.execute(batches_table().insert().values(values))
    edit(engine, claim.job_id, batch_id=batch, item_id="1", item_position=1)
    repository.complete(claim.job_id, claim.execution_token)
    back_date(engine, claim.job_id, 10 * MINUTE, "completed_at", "last_updated_at")
    assert BatchRepository(repository).purge(RULES, MINUTE, 10) == (1, 1)
    assert lines(log, claim) == []
