"""Claims whose answers never came: the database may have made them, or may make them yet, and nobody runs them."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID, uuid4

from flask_async_jobs.errors import StorageUnavailable
from flask_async_jobs.outages import may_have_taken_effect
from flask_async_jobs.repository import JobRepository

LATEST: Final = 1000.0
"""Seconds after which a network has delivered a statement or never will: a kernel sends again for 924 s."""

MOST: Final = 1000

_log = logging.getLogger("flask_async_jobs")


class LostClaims:
    """Gives back what the lost claims of this process took, before a lease lapses that nobody renews.

    Without this an outage could fail a job that no handler has seen. Each claim bears a mark of its own, so that
    what came of it can be told from everything else, whenever it comes.

    Args:
        repository: The job store.
        found: Called when jobs are due again because of this.
    """

    def __init__(self, repository: JobRepository, found: Callable[[], None]) -> None:
        self._repository = repository
        self._found = found
        self._marks: deque[tuple[float, UUID]] = deque(maxlen=MOST)

    @contextmanager
    def watched(self) -> Iterator[UUID]:
        """Give the mark for the claim that is made in the block, and remember it if that has no answer."""
        mark = uuid4()
        try:
            yield mark
        except StorageUnavailable as error:
            if may_have_taken_effect(error):
                self._marks.append((time.monotonic() + LATEST, mark))
            raise

    def give_back_once(self) -> int:
        """Make the jobs of lost claims PENDING again, their attempts not counted, and return how many.

        No statement while no claim is lost, else one.
        """
        now = time.monotonic()
        remembered = tuple(self._marks)  # a copy in one step: the thread that claims may add to it meanwhile
        marks = [mark for forgotten_at, mark in remembered if forgotten_at > now]
        given_back = self._repository.give_back(marks) if marks else []
        for job_id in given_back:
            _log.warning("job %s: the answer to its claim was lost; it is PENDING again", job_id)
        if given_back:
            self._found()
        return len(given_back)
