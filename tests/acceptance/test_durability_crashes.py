"""A job that kills its workers comes to an end, and a dead one locks nobody out."""

import signal
from pathlib import Path

import pytest

from tests.acceptance.apps.harness import Consumer
from tests.acceptance.apps.workers import working
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

SETTINGS = {"HANDLERS": {"die": {"max_attempts": 3}, "gate": {"coalesce": True}}, "processing_lease": 1}


def test_a_job_that_kills_its_workers_fails_after_its_attempts_and_harms_no_other(consumer: Consumer) -> None:
    deadly = consumer.store.add_orphan("die")
    others = [consumer.store.add_orphan("quick") for _ in range(20)]
    served = consumer.serve("--workers", "2", processing_concurrency_limit=1, **SETTINGS)
    ended = consumer.end_of(deadly, 30)
    assert (ended.status_code, ended.json()["jobStatus"]) == (422, "FAILED")
    assert (ended.json()["title"], ended.json()["code"]) == ("Processing timeout", "attempts-exhausted")
    assert ended.json()["attempt"] == 3
    consumer.wait_for_states(COMPLETED=20, FAILED=1)
    consumer.processes(2)
    consumer.run("quick")
    runs = [(run.job_id, run.attempt) for run in consumer.store.runs()]
    assert [attempt for job_id, attempt in runs if job_id == deadly] == [1, 2, 3]
    assert sorted(run for run in runs[:-1] if run[0] != deadly) == sorted((each, 1) for each in others)
    assert consumer.store.path(deadly) == [*["PENDING", "PROCESSING"] * 3, "FAILED"]
    assert served.is_running


def test_jobs_that_run_beside_one_that_kills_its_workers_are_started_again_while_they_have_attempts(
    consumer: Consumer,
) -> None:
    deadly = consumer.store.add_orphan("die")
    others = [consumer.store.add_orphan("quick") for _ in range(20)]
    handlers = {"die": {"max_attempts": 3}, "quick": {"max_attempts": 4}}
    consumer.serve("--workers", "2", HANDLERS=handlers, processing_lease=1)
    assert consumer.end_of(deadly, 30).json()["code"] == "attempts-exhausted"
    consumer.wait_for_states(COMPLETED=20, FAILED=1)
    runs = [(run.job_id, run.attempt) for run in consumer.store.runs()]
    assert [attempt for job_id, attempt in runs if job_id == deadly] == [1, 2, 3]
    assert len(runs) == len(set(runs))
    assert {consumer.store.path(each)[-1] for each in others} == {"COMPLETED"}


def test_a_job_that_kills_its_workers_can_be_cancelled_between_two_crashes(
    consumer: Consumer, tmp_path: Path
) -> None:
    consumer.serve("--threads", "4", processing_enabled=False, **SETTINGS)
    ids = [consumer.submit("die").json()["jobId"] for _ in range(2)]
    with working(consumer, tmp_path, dies=True, processing_concurrency_limit=2, **SETTINGS) as worker:
        assert worker.wait() == 1
    assert consumer.store.runs()
    first, second = ids
    assert consumer.http.delete(f"/jobs/{first}").status_code == 202  # its lease still lives
    wait_until(lambda: consumer.store.job(second).status == "PENDING", 10, "the recovery")
    assert consumer.http.delete(f"/jobs/{second}").status_code == 202
    before = consumer.store.runs()
    with working(consumer, tmp_path, **SETTINGS) as worker:
        assert consumer.run("quick").json()["status"] == "COMPLETED"
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    consumer.wait_for_states(CANCELLED=2, COMPLETED=1)
    assert len(consumer.store.runs()) == len(before) + 1


def test_a_dead_job_holds_its_single_flight_place_until_it_is_recovered_and_no_longer(
    consumer: Consumer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    work = {"file": str(gate)}
    consumer.serve("--threads", "4", processing_enabled=False, **SETTINGS)
    with working(consumer, tmp_path, **SETTINGS) as worker:
        first = consumer.submit("gate", work).json()["jobId"]
        wait_until(consumer.store.runs, 10, "the run")
        worker.signal(signal.SIGKILL)
        worker.wait()
        joined = consumer.submit("gate", work)
    assert (joined.status_code, joined.json()["jobId"]) == (202, first)
    assert joined.json()["disposition"] == "coalesced"
    assert consumer.end_of(first).json()["code"] == "processing-timeout"
    second = consumer.submit("gate", work)
    assert (second.status_code, second.json()["disposition"]) == (202, "created")
    assert second.json()["jobId"] != first
    gate.touch()
    with working(consumer, tmp_path, **SETTINGS):
        assert consumer.follow(second).json()["status"] == "COMPLETED"
    assert [run.job_id for run in consumer.store.runs()] == [first, second.json()["jobId"]]
