"""When to run a job again."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Final

LONGEST_BACKOFF: Final = timedelta(hours=1)
JITTER: Final = 0.25


def backoff_delay(attempt: int, base: timedelta, spread: float | None = None) -> timedelta:
    """Return how long to wait before the attempt after `attempt`.

    Doubles with each attempt, is at most an hour (or `base`, if that is longer), and gets up to a quarter longer at
    random, so that jobs that failed together do not all come back together.

    Args:
        attempt: The attempt that failed, from 1.
        base: The delay after the first.
        spread: 0 to 1, what part of the jitter to add; random if left out.
    """
    longest = max(base, LONGEST_BACKOFF)
    doublings = min(attempt - 1, 40)
    delay = min(base.total_seconds() * 2.0**doublings, longest.total_seconds())
    part = random.random() if spread is None else spread  # noqa: S311 - nothing secret
    return timedelta(seconds=delay * (1 + JITTER * part))
