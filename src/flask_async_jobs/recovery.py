"""One pass over the jobs that nobody brings to an end any more."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from flask_async_jobs.config import Settings
from flask_async_jobs.dispatcher import Dispatcher
from flask_async_jobs.errors import StorageUnavailable
from flask_async_jobs.records import TypeRules
from flask_async_jobs.repository import JobRepository
from flask_async_jobs.states import JobStatus

_log = logging.getLogger("flask_async_jobs")


class Recovery:
    """Finds stranded jobs of the registered types. Every instance may do so at once; each job is taken by one.

    Args:
        repository: The job store.
        rules: The types of this instance; jobs of any other are left alone.
        settings: The limits.
        dispatcher: Gives the dispatcher that runs in this process, or None.
    """

    def __init__(
        self,
        repository: JobRepository,
        rules: Callable[[], Sequence[TypeRules]],
        settings: Settings,
        dispatcher: Callable[[], Dispatcher | None],
    ) -> None:
        self._repository = repository
        self._rules = rules
        self._settings = settings
        self._dispatcher = dispatcher

    def sweep(self) -> int:
        """Make one pass and return how many jobs were acted on.

        A zombie goes back to PENDING while it has attempts left and fails otherwise. Jobs that have been PENDING
        for `RECOVERY_REDISPATCH_AFTER` wake this process's dispatcher, and count if there is one. One statement
        when nothing is stranded.
        """
        rules, dispatcher, settings = self._rules(), self._dispatcher(), self._settings
        if not rules:
            return 0
        mine = dispatcher.running if dispatcher else ()
        stranded = self._repository.stranded(
            rules,
            settings.recovery_batch_size,
            settings.recovery_processing_timeout,
            settings.recovery_redispatch_after,
            mine,
        )
        zombies = [job_id for job_id, status in stranded.items() if status is JobStatus.PROCESSING]
        recovered = self._recover(zombies, rules, mine)
        waiting = len(stranded) - len(zombies)
        if dispatcher and (waiting or JobStatus.PENDING in recovered.values()):
            dispatcher.wake()
        return len(recovered) + (waiting if dispatcher else 0)

    def _recover(
        self, zombies: Sequence[UUID], rules: Sequence[TypeRules], mine: Collection[UUID]
    ) -> dict[UUID, JobStatus]:
        """Take all zombies at once; if one row makes that fail, one by one, so that it harms no other."""
        if not zombies:
            return {}
        silent = self._settings.recovery_processing_timeout
        try:
            recovered = self._repository.recover(zombies, rules, silent, mine)
        except Exception:  # of any kind: which row it was shows below, and an outage shows there too
            recovered = self._one_by_one(zombies, rules, mine)
        for job_id, status in recovered.items():
            _log.warning("job %s: its attempt is dead; it is %s now", job_id, status)
        return recovered

    def _one_by_one(
        self, zombies: Sequence[UUID], rules: Sequence[TypeRules], mine: Collection[UUID]
    ) -> dict[UUID, JobStatus]:
        """Take each zombie by itself. Two in a row that the database does not answer for are an outage."""
        recovered: dict[UUID, JobStatus] = {}
        unanswered = 0
        for job_id in zombies:
            try:
                recovered |= self._repository.recover(
                    [job_id], rules, self._settings.recovery_processing_timeout, mine
                )
            except StorageUnavailable:
                unanswered += 1
                if unanswered == 2:
                    raise
                _log.error("job %s could not be recovered: the database did not answer for it", job_id)
            except Exception:
                _log.exception("job %s could not be recovered", job_id)
            else:
                unanswered = 0
        return recovered
