"""A stream tells what becomes of its job, whoever does it."""

import signal
from pathlib import Path

import pytest

from tests.acceptance.apps.harness import Consumer
from tests.acceptance.apps.streams import events_of_orphan, told
from tests.acceptance.apps.workers import working

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

SETTINGS = {"processing_lease": 1, "sse_poll_interval": 0.1, "HANDLERS": {"slow": {"max_attempts": 2}}}


def test_a_job_that_another_process_runs_loses_and_runs_again_is_followed_to_its_end(
    consumer: Consumer, tmp_path: Path
) -> None:
    consumer.serve("--threads", "4", processing_enabled=False, **SETTINGS)
    gate, seen = tmp_path / "gate", list[str]()
    url = consumer.submit("slow", {"n": 60, "every": 0.1, "file": str(gate)}).json()["eventsUrl"]

    def read_until(name: str) -> None:
        while seen[-1:] != [name]:
            seen.append(next(events).event)

    with consumer.http.stream("GET", url) as answer:
        events = told(answer.iter_lines())
        with working(consumer, tmp_path, **SETTINGS) as worker:
            read_until("progress")
            worker.signal(signal.SIGKILL)
        read_until("status")
        with working(consumer, tmp_path, **SETTINGS):
            read_until("progress")
            gate.touch()
            seen += [event.event for event in events]
    assert (seen[0], seen[-1], seen.count("complete")) == ("status", "complete", 1)
    second = seen.index("status", seen.index("progress"))
    assert "progress" in seen[second:], seen
    assert consumer.http.get(url.replace("/events", "/status")).json()["attempt"] == 2


def test_a_change_at_a_console_is_told(consumer: Consumer) -> None:
    consumer.serve("--threads", "4", sse_poll_interval=0.1)
    url = events_of_orphan(consumer)
    with consumer.http.stream("GET", url) as answer:
        events = told(answer.iter_lines())
        assert next(events).event == "status"
        consumer.store.cancel(url.split("/")[-2])
        assert [event.event for event in events] == ["cancelled"]
