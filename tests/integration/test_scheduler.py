"""The recurring passes: one after the other, each at its turns, and none that keeps a process from its end."""

import threading
import time
from datetime import timedelta

import pytest

from flask_async_jobs.scheduler import Scheduler

OFTEN = timedelta(milliseconds=20)


@pytest.fixture
def scheduler():
    scheduler = Scheduler()
    yield scheduler
    scheduler.stop()
    scheduler.join(5)


class Pass:
    """A pass that lasts until the gate is open, and the number of times it was made."""

    def __init__(self) -> None:
        self.begun, self.gate, self.times = threading.Event(), threading.Event(), 0

    def __call__(self) -> None:
        self.times += 1
        self.begun.set()
        assert self.gate.wait(10)


def test_a_scheduler_stops_at_once_while_a_pass_hangs(scheduler):
    hanging = Pass()
    scheduler.every(OFTEN, "recovery", hanging)
    scheduler.start()
    assert hanging.begun.wait(5)
    begun = time.monotonic()
    scheduler.stop()
    scheduler.join(0.1)
    assert time.monotonic() - begun < 1
    hanging.gate.set()
    scheduler.join(5)
    assert hanging.times == 1


def test_one_pass_runs_at_a_time_and_missed_turns_are_not_made_up_for(scheduler, caplog):
    slow, other = Pass(), Pass()
    other.gate.set()
    scheduler.every(OFTEN, "recovery", slow)
    scheduler.every(OFTEN, "purge", other)
    scheduler.start()
    assert slow.begun.wait(5)
    made = other.times
    assert not threading.Event().wait(0.2)
    assert (slow.times, other.times) == (1, made)
    other.begun.clear()
    slow.gate.set()
    assert other.begun.wait(5)
    scheduler.stop()
    scheduler.join(5)
    assert not [record.message for record in caplog.records if "scheduler" in record.name]


def test_a_pass_that_fails_comes_again(scheduler, caplog):
    twice, times = threading.Event(), []

    def failing() -> None:
        times.append(1)
        if len(times) == 2:
            twice.set()
        raise LookupError("nothing here")

    scheduler.every(OFTEN, "recovery", failing)
    scheduler.start()
    assert twice.wait(5)
    assert "recovery failed; the next turn tries again" in caplog.text


def test_the_end_of_a_scheduler_that_was_never_started_is_quiet(scheduler):
    scheduler.stop()
    scheduler.join(0)
