"""Writing completions together when several handlers end within a moment."""

from __future__ import annotations

import threading
from typing import Final

from flask_async_jobs.records import Claim
from flask_async_jobs.repository import JobRepository

MOST: Final = 100


class _Entry:
    """A completion that waits to be written: by another thread, or by its own when that is told to lead."""

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.called = threading.Event()
        self.leads = False
        self.written = False
        self.error: BaseException | None = None


class Completions:
    """Writes the completions of attempts without a result, each thread its own or all that wait with it.

    A lone completion is written at once. Those that come while one is being written wait for it, and then go
    together in one statement. That statement skips rows which somebody has locked; they are written one by one.
    """

    def __init__(self, repository: JobRepository) -> None:
        self._repository = repository
        self._lock = threading.Lock()
        self._waiting: list[_Entry] = []
        self._writing = False

    def write(self, claim: Claim) -> bool:
        """Record that the attempt completed; fenced like `JobRepository.complete`. False: the claim was lost.

        Raises:
            StorageUnavailable: The database cannot be asked.
        """
        own = _Entry(claim)
        with self._lock:
            self._waiting.append(own)
            own.leads = not self._writing
            self._writing = True
        if not own.leads:
            own.called.wait()
        if own.leads:
            self._lead()
        if own.error is not None:
            raise own.error
        return own.written or self._repository.complete(claim.job_id, claim.execution_token) is not None

    def _lead(self) -> None:
        """Write what waits together, and let the next thread lead if more has come.

        What could not be written is left to its own thread: a locked row delays nobody else.
        """
        with self._lock:
            entries, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        try:
            together = self._repository.complete_all([entry.claim for entry in entries])
            for entry in entries:
                entry.written = entry.claim.job_id in together
        except BaseException as error:  # each of the threads meets the failure and decides for its own job
            for entry in entries:
                entry.error = error
        for entry in entries:
            entry.called.set()
        with self._lock:
            if not self._waiting:
                self._writing = False
                return
            next_leader = self._waiting[0]
            next_leader.leads = True
        next_leader.called.set()
