"""One pass over the jobs that nobody can expect to find any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from flask_async_jobs.batch_repository import BatchRepository
from flask_async_jobs.records import TypeRules
from flask_async_jobs.repository import JobRepository

BATCH: Final = 1_000
BATCHES: Final = 20
WHOLE: Final = 10
"""How many batches of jobs are removed in one transaction, each with all its items."""


class Purge:
    """Removes jobs of the registered types whose retention is over.

    Args:
        repository: The job store.
        batches: The store of batches.
        rules: The types of this instance; jobs of any other are left alone.
        retention: How long a job that has ended can be read: until then its `Expires` was announced.
    """

    def __init__(
        self,
        repository: JobRepository,
        batches: BatchRepository,
        rules: Callable[[], Sequence[TypeRules]],
        retention: timedelta,
    ) -> None:
        self._repository = repository
        self._batches = batches
        self._rules = rules
        self._retention = retention

    def sweep(self, older_than: timedelta | None = None) -> int:
        """Make one pass and return how many jobs were removed.

        At most 20,000 jobs in transactions of 1,000, then at most 200 batches with all their items in transactions
        of 10.

        Args:
            older_than: How long ago a job must have ended; never less than the retention, which is the default.
        """
        age = max(older_than or self._retention, self._retention)
        rules = self._rules()
        return self._single_jobs(rules, age) + self._whole_batches(rules, age) if rules else 0

    def _single_jobs(self, rules: Sequence[TypeRules], age: timedelta) -> int:
        purged = 0
        for _ in range(BATCHES):
            removed = self._repository.purge(rules, age, BATCH)
            purged += removed
            if removed < BATCH:
                break
        return purged

    def _whole_batches(self, rules: Sequence[TypeRules], age: timedelta) -> int:
        purged = 0
        for _ in range(BATCHES):
            batches, jobs = self._batches.purge(rules, age, WHOLE)
            purged += jobs
            if batches < WHOLE:
                break
        return purged
