"""The delay before another attempt."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_async_jobs.executor import later
from flask_async_jobs.retry import LONGEST_BACKOFF, backoff_delay

BASE = timedelta(seconds=10)


@pytest.mark.parametrize(
    ("attempt", "seconds"), [(1, 10), (2, 20), (3, 40), (9, 2_560), (10, 3_600), (1_000, 3_600)]
)
def test_the_delay_doubles_up_to_an_hour(attempt, seconds):
    assert backoff_delay(attempt, BASE, 0) == timedelta(seconds=seconds)


@given(st.integers(1, 10_000), st.timedeltas(timedelta(milliseconds=1), timedelta(days=1)))
def test_the_jitter_makes_it_at_most_a_quarter_longer(attempt, base):
    least, most = backoff_delay(attempt, base, 0), backoff_delay(attempt, base, 1)
    assert least <= backoff_delay(attempt, base) <= most
    assert most <= least * 1.26
    assert least <= max(base, LONGEST_BACKOFF)


def test_jobs_that_failed_together_do_not_come_back_together():
    assert len({backoff_delay(1, BASE) for _ in range(20)}) > 1


@pytest.mark.parametrize(
    ("delay", "taken"),
    [
        (BASE, BASE),
        (-BASE, timedelta(0)),
        ("soon", timedelta(0)),
        (30, timedelta(seconds=30)),
        ("PT1M", timedelta(minutes=1)),
        (None, timedelta(0)),
        (timedelta.max, timedelta(days=3650)),
    ],
)
def test_a_delay_that_makes_no_sense_is_none(delay, taken):
    assert later(delay) == taken
