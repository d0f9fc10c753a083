"""One pass over the jobs that nobody can expect to find any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from flask_async_jobs.records import TypeRules
from flask_async_jobs.repository import JobRepository

BATCH: Final = 1_000
BATCHES: Final = 20


class Purge:
    """Removes jobs of the registered types whose retention is over.

    Args:
        repository: The job store.
        rules: The types of this instance; jobs of any other are left alone.
        retention: How long a job that has ended can be read: until then its `Expires` was announced.
    """

    def __init__(
        self, repository: JobRepository, rules: Callable[[], Sequence[TypeRules]], retention: timedelta
    ) -> None:
        self._repository = repository
        self._rules = rules
        self._retention = retention

    def sweep(self, older_than: timedelta | None = None) -> int:
        """Make one pass and return how many jobs were removed: at most 20,000, in short transactions of 1,000.

        Args:
            older_than: How long ago a job must have ended; never less than the retention, which is the default.
        """
        age = max(older_than or self._retention, self._retention)
        rules = self._rules()
        purged = 0
        for _ in range(BATCHES if rules else 0):
            removed = self._repository.purge(rules, age, BATCH)
            purged += removed
            if removed < BATCH:
                break
        return purged
