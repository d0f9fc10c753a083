"""Wait for a condition instead of for a time."""

import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

T = TypeVar("T")

POLL_INTERVAL = 0.01


def wait_until(
    predicate: Callable[[], T], timeout: float = 10, message: str | Callable[[], str] = "the condition"
) -> T:
    """Call `predicate` every 10 ms until it is truthy and return what it gave.

    Args:
        predicate: What must become true; an exception it raises ends the wait.
        timeout: Seconds; the predicate is always asked at least once, and once more at the end.
        message: What was waited for; a callable is only asked when the wait fails.

    Raises:
        AssertionError: The time ran out.
    """
    pause = Event()
    deadline = time.monotonic() + timeout
    while True:
        late = time.monotonic() >= deadline
        if outcome := predicate():
            return outcome
        if late:
            what = message() if callable(message) else message
            raise AssertionError(f"waited {timeout} s in vain for {what}")
        pause.wait(POLL_INTERVAL)
