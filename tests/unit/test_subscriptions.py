"""The place from which a job is followed: each state is told once, in order, whoever reads it first."""

from dataclasses import dataclass
from itertools import permutations

import pytest

from flask_async_jobs.states import JobStatus
from flask_async_jobs.subscriptions import Subscription


@dataclass(frozen=True)
class State:
    revision: int
    status: JobStatus = JobStatus.PROCESSING


@pytest.fixture
def place():
    return Subscription((None, None), 9, lambda place: None)


def told(place):
    return [state.revision for state in iter(lambda: place.next(0), None)]


def test_what_was_read_twice_is_told_once(place):
    place.begin(State(1))
    for revision in (1, 2, 2, 3, 3):
        place.offer(State(revision))
    assert told(place) == [2, 3]


def test_what_the_watcher_read_before_the_stream_began_is_told_once(place):
    place.offer(State(12))
    place.begin(State(11))
    place.offer(State(12))
    place.offer(State(13))
    assert told(place) == [12, 13]


def test_what_the_watcher_read_before_what_the_stream_began_with_is_not_told(place):
    place.begin(State(12))
    place.offer(State(11))
    place.offer(State(13))
    assert told(place) == [13]


@pytest.mark.parametrize(
    "order", list(permutations(["watcher reads 2", "stream begins with 1", "watcher reads 2 again"]))
)
def test_in_whatever_order_it_begins_nothing_is_told_twice(place, order):
    for step in order:
        if step.startswith("stream"):
            place.begin(State(1))
        else:
            place.offer(State(2))
    assert told(place) == [2]


def test_a_change_by_hand_without_a_revision_is_told(place):
    place.begin(State(3))
    place.offer(State(3, JobStatus.PENDING))
    assert told(place) == [3]


def test_an_end_is_told_whatever_its_revision(place):
    place.begin(State(3))
    place.offer(State(1, JobStatus.CANCELLED))
    assert told(place) == [1]
