"""A row is removed when its retention is over, by a process that knows its type, and never while it is in use."""

import time
from datetime import timedelta
from email.utils import parsedate_to_datetime

import pytest

from tests.acceptance.apps.harness import CONSUMER, Consumer, state_of
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

DURABLE = CONSUMER.with_name("durable.py")
DAY = timedelta(days=1)
ENDED = {
    "COMPLETED": {"execution_token": None},
    "CANCELLED": {"execution_token": None},
    "FAILED": {"execution_token": None, "error_title": "No"},
}
IDLE = {"recovery_enabled": False, "processing_enabled": False}
PURGING = {"purge_enabled": True, "purge_interval": 0.2, "sse_heartbeat": 0.5}


def test_a_job_stays_while_it_runs_and_until_the_instant_that_it_announced(consumer: Consumer) -> None:
    consumer.serve("--workers", "2", retention=2, **PURGING)
    steps = {"n": 4, "every": 0.1}
    accepted = consumer.submit("slow", steps, key="k")
    ended = consumer.follow(accepted)
    assert state_of(ended) == "COMPLETED", "it ran for twice the retention"
    assert consumer.submit("slow", steps, key="k").json()["jobId"] == accepted.json()["jobId"]
    wait_until(lambda: consumer.http.get(accepted.headers["Location"]).status_code == 404, 10, "the removal")
    assert time.time() >= parsedate_to_datetime(ended.headers["Expires"]).timestamp()
    again = consumer.submit("slow", {"n": 0.1}, key="k")
    assert (again.status_code, again.json()["disposition"]) == (202, "created")
    assert consumer.new_trouble() == []


def test_a_process_removes_no_job_of_a_type_that_it_does_not_know(consumer: Consumer) -> None:
    ended = {
        letter: [
            consumer.store.add_abandoned(letter, status=status, completed_at=DAY, **columns)
            for status, columns in ENDED.items()
        ]
        for letter in "abc"
    }
    active = [consumer.store.add_orphan("a"), consumer.store.add_abandoned("a")]
    consumer.serve("--threads", "2", application=DURABLE, LETTERS="bc", **PURGING)
    consumer.processes(1)
    consumer.wait_for_states(COMPLETED=1, FAILED=1, CANCELLED=1, PENDING=1, PROCESSING=1)
    assert {consumer.store.job(each).type for each in ended["a"] + active} == {"a"}
    consumer.serve(
        "--threads",
        "2",
        application=DURABLE,
        LETTERS="ab",
        recovery_enabled=False,
        processing_enabled=False,
        **PURGING,
    )
    consumer.processes(1)
    consumer.wait_for_states(PENDING=1, PROCESSING=1)
    assert consumer.new_trouble() == []
