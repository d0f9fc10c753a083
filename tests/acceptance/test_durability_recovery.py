"""Who is alive stays untouched, who is dead is found, and strangers are left alone."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.apps.harness import CONSUMER, Consumer
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

DURABLE = CONSUMER.with_name("durable.py")
SHORT_LEASE = {"processing_lease": 1, "recovery_processing_timeout": 1}
FOREIGN: list[dict[str, Any]] = [
    {"attempt": 0, "started_at": None, "lease_expires_at": None},
    {"attempt": 0, "started_at": None},
    {"attempt": 0, "lease_expires_at": None},
    {"started_at": None, "lease_expires_at": None},
    {"lease_expires_at": None},
    {"lease_expires_at": None, "payload": "{}", "percent_complete": 50, "work_key": None, "fingerprint": None},
    {},
]


def test_a_long_job_runs_once_under_two_instances_whether_it_reports_or_not(consumer: Consumer) -> None:
    several = {"max_attempts": 3}
    for _ in range(2):
        consumer.serve("--threads", "2", HANDLERS={"slow": several, "silent": several}, **SHORT_LEASE)
        consumer.processes(1)
    ids = [consumer.submit("slow", {"n": 4, "every": 0.3}), consumer.submit("silent", {"n": 4})]
    jobs = [answer.json()["jobId"] for answer in ids]
    consumer.wait_for_states(COMPLETED=2)
    assert sorted(run.job_id for run in consumer.store.runs()) == sorted(jobs)
    for job_id in jobs:
        assert consumer.store.path(job_id) == ["PENDING", "PROCESSING", "COMPLETED"]
        assert consumer.store.job(job_id).attempt == 1
    assert consumer.new_trouble() == []


def test_a_type_that_has_to_report_is_started_again_when_silent_and_the_late_attempt_changes_nothing(
    consumer: Consumer, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    handlers = {"gate": {"max_attempts": 2, "processing_timeout": 1.5}}
    consumer.serve("--threads", "2", HANDLERS=handlers)
    job_id = consumer.submit("gate", {"file": str(gate)}).json()["jobId"]
    wait_until(lambda: len(consumer.store.runs()) == 2, 10, "the second attempt")
    gate.touch()
    ended = consumer.end_of(job_id)
    assert (ended.json()["status"], ended.json()["attempt"]) == ("COMPLETED", 2)
    assert consumer.store.path(job_id) == ["PENDING", "PROCESSING", "PENDING", "PROCESSING", "COMPLETED"]
    assert [run.attempt for run in consumer.store.runs()] == [1, 2]


def test_an_orphan_of_yesterday_is_started_once_more_and_not_again_and_again(consumer: Consumer) -> None:
    orphan = consumer.store.add_abandoned("slow", {"n": 12, "every": 0.3})
    for _ in range(2):
        consumer.serve("--threads", "2", HANDLERS={"slow": {"max_attempts": 2}}, **SHORT_LEASE)
        consumer.processes(1)
    wait_until(consumer.store.runs, 10, "the run")
    status = consumer.http.get(f"/jobs/{orphan}/status").json()
    assert (status["status"], status["attempt"]) == ("PROCESSING", 2)
    updated = datetime.fromisoformat(status["lastUpdatedAt"])
    assert abs(datetime.now(UTC) - updated) < timedelta(minutes=1)
    assert datetime.fromisoformat(status["startedAt"]) > datetime.fromisoformat(status["createdAt"])
    ended = consumer.end_of(orphan)
    assert (ended.json()["status"], ended.json()["attempt"]) == ("COMPLETED", 2)
    assert [(run.job_id, run.attempt) for run in consumer.store.runs()] == [(orphan, 2)]
    assert consumer.store.path(orphan) == ["PROCESSING", "PENDING", "PROCESSING", "COMPLETED"]


def test_abandoned_rows_of_any_make_are_recovered(consumer: Consumer) -> None:
    again = [consumer.store.add_abandoned("quick", **columns) for columns in FOREIGN]
    never = [consumer.store.add_abandoned("silent", **columns) for columns in FOREIGN]
    consumer.serve("--threads", "2", HANDLERS={"quick": {"max_attempts": 2}})
    consumer.processes(1)
    consumer.wait_for_states(COMPLETED=len(again), FAILED=len(never))
    assert sorted(run.job_id for run in consumer.store.runs()) == sorted(again)
    for job_id, columns in zip(again, FOREIGN, strict=True):
        assert consumer.store.job(job_id).attempt == columns.get("attempt", 1) + 1
    assert {consumer.store.job(each).error_code for each in never} == {"processing-timeout"}
    assert consumer.new_trouble() == []


def test_an_instance_leaves_jobs_of_types_that_it_does_not_know_alone(
    postgres_consumer: Consumer, tmp_path: Path
) -> None:
    consumer, file = postgres_consumer, {"file": str(tmp_path)}
    waiting = {letter: consumer.store.add_orphan(letter, file) for letter in "abc"}
    abandoned = {letter: consumer.store.add_abandoned(letter, file) for letter in "abc"}
    of_a = [waiting["a"], abandoned["a"]]
    before = [consumer.store.job(each) for each in of_a]
    consumer.serve("--threads", "2", application=DURABLE, LETTERS="bc")
    consumer.processes(1)
    consumer.wait_for_states(COMPLETED=2, FAILED=2, PENDING=1, PROCESSING=1)
    consumer.run("b", file)
    assert [consumer.store.job(each) for each in of_a] == before
    assert {run.job_id for run in consumer.store.runs()}.isdisjoint(of_a)
    shown = [consumer.http.get(f"/jobs/{each}/status").json()["status"] for each in of_a]
    assert shown == ["PENDING", "PROCESSING"]
    assert consumer.submit("a", file).status_code == 400
    assert consumer.new_trouble() == []

    consumer.serve("--threads", "2", application=DURABLE, LETTERS="ab")
    assert consumer.end_of(waiting["a"]).json()["status"] == "COMPLETED"
    assert consumer.end_of(abandoned["a"]).json()["code"] == "processing-timeout"
    assert [run.job_id for run in consumer.store.runs()].count(waiting["a"]) == 1


def test_the_job_of_a_killed_instance_waits_for_one_that_knows_its_type(
    postgres_consumer: Consumer, tmp_path: Path
) -> None:
    consumer, gate = postgres_consumer, tmp_path / "gate"
    consumer.serve("--threads", "2", application=DURABLE, LETTERS="bc", processing_lease=1)
    consumer.processes(1)
    first = consumer.serve("--threads", "2", application=DURABLE, LETTERS="ab", processing_lease=1)
    killed = consumer.submit("a", {"file": str(gate)}).json()["jobId"]
    wait_until(consumer.store.runs, 10, "the run")
    first.kill()
    before = consumer.store.job(killed)
    wait_until(lambda: datetime.now(UTC) > before.lease_expires_at, 5, "the end of the lease")
    other = consumer.store.add_abandoned("b", {"file": str(gate)})
    wait_until(lambda: consumer.store.job(other).status == "FAILED", 5, "a scan of the other instance")
    assert consumer.store.job(killed) == before

    start = time.monotonic()
    consumer.serve("--threads", "2", application=DURABLE, LETTERS="ab", processing_lease=1)
    assert consumer.end_of(killed).json()["code"] == "processing-timeout"
    assert time.monotonic() - start < 5
