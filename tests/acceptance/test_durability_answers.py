"""Key × freshness × single-flight × no-cache; the answer tells a new job from one that was joined."""

from pathlib import Path

import httpx
import pytest

from tests.acceptance.apps.harness import Consumer
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

NO_CACHE = {"Cache-Control": "No-Cache, no-transform"}
# What answers a second submission of the same work while the first job runs, and when it has completed.
# The types have freshness, single-flight, both or neither; the key is the first one's.
TABLE = [
    # type, key, no-cache, running, completed
    ("always", False, False, "created", "created"),
    ("always", False, True, "created", "created"),
    ("single", False, False, "coalesced", "created"),
    ("single", False, True, "coalesced", "created"),
    ("fresh", False, False, "created", "fresh"),
    ("fresh", False, True, "created", "created"),
    ("fresh-single", False, False, "coalesced", "fresh"),
    ("fresh-single", False, True, "coalesced", "created"),
    ("always", True, False, "replayed", "replayed"),
    ("always", True, True, "replayed", "replayed"),
    ("single", True, False, "replayed", "replayed"),
    ("single", True, True, "replayed", "replayed"),
    ("fresh", True, False, "replayed", "replayed"),
    ("fresh", True, True, "replayed", "replayed"),
    ("fresh-single", True, False, "replayed", "replayed"),
    ("fresh-single", True, True, "replayed", "replayed"),
]


@pytest.mark.parametrize(("type", "keyed", "no_cache", "running", "completed"), TABLE)
def test_a_second_submission_of_the_same_work_is_answered_by_the_table(
    durable: Consumer, tmp_path: Path, type: str, keyed: bool, no_cache: bool, running: str, completed: str
) -> None:
    def submit(file: Path) -> httpx.Response:
        key = f"{tmp_path.name}-{file.name}-{durable.store.url[:6]}" if keyed else None
        return durable.submit(type, {"file": str(file)}, key, NO_CACHE if no_cache else None)

    gate, opened = tmp_path / "gate", tmp_path / "opened"
    first = submit(gate)
    wait_until(lambda: runs_of(durable, first) == 1, 10, "the run")
    second = submit(gate)
    check_answer(first, second, running, active=True)
    gate.touch()
    assert durable.follow(first).json()["status"] == durable.follow(second).json()["status"] == "COMPLETED"
    assert runs_of(durable, first) == runs_of(durable, second) == 1

    opened.touch()
    first = submit(opened)
    assert durable.follow(first).json()["status"] == "COMPLETED"
    second = submit(opened)
    check_answer(first, second, completed, active=False)
    assert durable.follow(second).json()["status"] == "COMPLETED"
    assert runs_of(durable, first) == runs_of(durable, second) == 1
    assert durable.new_trouble() == []


def test_a_key_that_was_answered_with_another_job_is_still_free(durable: Consumer, tmp_path: Path) -> None:
    gate, key = tmp_path / "gate", f"free-{durable.store.url[:6]}"
    first = durable.submit("fresh-single", {"file": str(gate)})
    joined = durable.submit("fresh-single", {"file": str(gate)}, key)
    assert (joined.json()["disposition"], joined.json()["jobId"]) == ("coalesced", first.json()["jobId"])
    gate.touch()
    durable.follow(first)
    fresh = durable.submit("fresh-single", {"file": str(gate)}, key)
    assert (fresh.json()["disposition"], fresh.json()["jobId"]) == ("fresh", first.json()["jobId"])
    other = durable.submit("always", {"file": str(gate)}, key)
    assert (other.status_code, other.json()["disposition"]) == (202, "created")
    assert durable.submit("fresh-single", {"file": str(gate)}, key).status_code == 422
    durable.follow(other)


def check_answer(first: httpx.Response, second: httpx.Response, disposition: str, *, active: bool) -> None:
    """Check that an answer says that it is a new job or the first one, and what state that is in."""
    assert (first.status_code, first.json()["disposition"]) == (202, "created")
    assert (second.status_code, second.json()["disposition"]) == (202, disposition)
    is_new = disposition == "created"
    assert (second.json()["jobId"] != first.json()["jobId"]) == is_new
    assert (second.headers["Location"] != first.headers["Location"]) == is_new
    if not is_new:
        assert second.json()["status"] == ("PROCESSING" if active else "COMPLETED")
    assert ("Retry-After" in second.headers) == (active or is_new)


def runs_of(consumer: Consumer, answer: httpx.Response) -> int:
    """How often a job was executed."""
    return [run.job_id for run in consumer.store.runs()].count(answer.json()["jobId"])
