"""Throughput from the instants at which jobs completed. Pure functions; instants in seconds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

WINDOW: Final = 1.0
STEP: Final = 0.05
SHARE: Final = 0.95


def rate(completed: Sequence[float], begin: float, end: float) -> float:
    """Return the completions per second after `begin` until `end`; `completed` is sorted."""
    return (bisect_right(completed, end) - bisect_right(completed, begin)) / max(end - begin, STEP)


def recovery_time(
    completed: Sequence[float], baseline: float, fault_begin: float, fault_end: float, end: float
) -> float | None:
    """Return the seconds from `fault_end` until a rolling window reached 95 % of `baseline`, or None if none did.

    A window from before the fault does not count, so that a short fault takes at least the length of one.

    Args:
        completed: When jobs completed, sorted.
        baseline: Completions per second before the fault.
        fault_begin: When the fault began.
        fault_end: When the fault was over.
        end: When the load stopped.
    """
    first = max(fault_end, fault_begin + WINDOW)
    for step in range(int((end - first) / STEP) + 1):
        at = first + step * STEP
        if rate(completed, at - WINDOW, at) >= SHARE * baseline:
            return at - fault_end
    return None
