"""What an attempt reports in passing, progress and lines of its log: at most one write in half a second."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import UUID

from flask_async_jobs.errors import StorageUnavailable
from flask_async_jobs.log import Written
from flask_async_jobs.records import Report
from flask_async_jobs.reports import Reports
from flask_async_jobs.states import storable

INTERVAL: Final = 0.5
"""Seconds between two writes of one attempt."""

PATIENCE: Final = 0.7
"""Seconds that a report waits for the database; with what a busy machine adds, less than a second."""

MOST_LINES: Final = 1_000
MOST_CHARACTERS: Final = 262_144
"""What one write takes with it; more goes in further ones, and other attempts have their turn in between."""

_log = logging.getLogger("flask_async_jobs")


class Pending:
    """What one attempt has reported and nobody has written yet. Safe to share between threads.

    The first report, and each that comes half a second or more after the last write, is written at once while its
    caller waits. What comes sooner is kept, and written half a second after the last write: the newest percentage,
    and every line in its order. While the database takes nothing nobody waits, and what is kept is tried again for
    as long as a lease lasts.
    """

    def __init__(self, reports: Reports, job_id: UUID, execution_token: UUID | None) -> None:
        self._reports = reports
        self._job_id = job_id
        self._execution_token = execution_token
        self._changed = threading.Condition()
        self._percent: int | None = None
        self._lines: deque[str] = deque()
        self._size = 0
        self._sent: Report | None = None
        self._doubtful: Report | None = None
        self._lines_written = 0
        self._has_more = self._is_writing = self._is_refused = False
        self._asked = self._taken = self._settled = 0
        self._next = self._not_before = 0.0
        self._written_at = -math.inf
        self._late_since: float | None = None

    def add(self, *, percent: int | None = None, line: object = None) -> bool:
        """Keep a report, and write it if it is time. False: this or an earlier one was refused."""
        until = time.monotonic() + PATIENCE
        with self._changed:
            if self._reports.has_ended(self._job_id):  # which a statement that is under way may not have seen
                self._wait_for(lambda: not self._is_writing, until)
                self._next = self._not_before = 0.0
            if self._is_refused:
                return False
            self._keep(percent, line)
            self._asked += 1
            if not self._is_writing:  # that goes on with what it finds when it is done
                self._schedule(until)
            return not self._is_refused

    def flush(self, patience: float, at_most: float = math.inf) -> None:
        """Write what is kept, and wait until that is done or refused.

        Args:
            patience: After how many seconds in which nothing could be written to give up; not while a statement is
                under way, which has its answer or breaks in a few seconds.
            at_most: How many seconds to wait in any case.
        """
        begun = time.monotonic()
        with self._changed:
            last, when = self._asked, 0.0
            while not self._is_settled(last):
                now = time.monotonic()
                left = min(max(begun, self._written_at) + patience, begun + at_most) - now
                if left <= 0 and self._is_writing and self._sent and now < begun + at_most:
                    left = INTERVAL
                if left <= 0:
                    return
                self._not_before = 0.0
                if not self._reports.due(self, when):
                    self.write()
                    left = min(left, INTERVAL)
                if not self._is_settled(last):
                    self._changed.wait(left)
                when = self._next

    def rest(self) -> Report | None:
        """Return what is kept, for a transaction of the caller's; lines stay here until the log has them."""
        with self._changed:
            if self._is_refused or not self._lines or (self._is_writing and self._sent):
                return None
            self._doubtful, self._percent = Report(self._percent, list(self._lines)), None
            return self._doubtful

    def refuse(self) -> None:
        """Take no more reports: the attempt has ended."""
        with self._changed:
            self._is_refused = True
            self._forget()
            self._changed.notify_all()

    def write(self) -> None:
        """Write what is kept, as much as goes with one statement. Nothing if that was done a moment ago."""
        with self._changed:
            if self._is_writing:
                return
            if time.monotonic() < self._not_before:
                self._reports.due(self, self._not_before)
                return
            self._is_writing, self._has_more, self._sent = True, False, None
            write = self._write_lines if self._lines else self._write_progress
        try:
            written = write()
        except StorageUnavailable:
            if self._sent and self._sent.lines:
                self._doubtful = self._sent
            written = Written.LATER
        except Exception:  # the outcome of the job does not depend on it
            _log.exception("job %s: what it reported cannot be written, and is left out", self._job_id)
            written = Written.TAKEN if self._sent else Written.LATER
        self._settle(written)

    # Keeping

    def _keep(self, percent: int | None, line: object) -> None:
        if percent is not None:
            self._percent = percent
        most = self._reports.log.most
        if line is not None and self._size <= most:  # beyond that the job fails, whatever else comes
            text = storable(line, most + 1)
            self._lines.append(text)
            self._size += len(text) or 1

    def _take(self, *, lines: bool = True) -> Report | None:
        """Take out what one write takes with it."""
        with self._changed:
            if self._is_refused or not self._is_kept:
                return None
            taken: list[str] = []
            size = 0
            while lines and self._lines and len(taken) < MOST_LINES and size < MOST_CHARACTERS:
                taken.append(self._lines.popleft())
                size += len(taken[-1])
            self._sent = Report(self._percent, taken)
            self._percent = None
            self._has_more = lines and bool(self._lines)
            if not self._lines:
                self._taken = self._asked
            return self._sent

    @property
    def _is_kept(self) -> bool:
        return bool(self._lines) or self._percent is not None

    def _forget(self) -> None:
        self._percent = None
        self._lines.clear()
        self._size = 0
        self._doubtful = None
        self._taken = self._settled = self._asked

    # Writing

    def _write_lines(self) -> Written:
        log, doubtful = self._reports.log, self._doubtful
        if doubtful and log.ends_with(self._job_id, doubtful.lines, self._lines_written):
            self._sent = doubtful
            with self._changed:
                for _ in doubtful.lines:
                    self._lines.popleft()
            self._doubtful = None
            return Written.TAKEN
        written = log.write(self._job_id, self._execution_token, self._take, self._reports.lease)
        if written is not Written.LATER:
            self._doubtful = None
        return written

    def _write_progress(self) -> Written:
        report, repository = self._take(lines=False), self._reports.log.repository
        if report is None or report.percent is None:
            return Written.TAKEN
        taken = repository.progress(self._job_id, self._execution_token, report.percent, self._reports.lease)
        return Written.LATER if taken is None else Written.TAKEN if taken else Written.REFUSED

    def _settle(self, written: Written) -> None:
        with self._changed:
            sent, now = self._sent, time.monotonic()
            self._is_writing = False
            self._next = self._not_before = now + INTERVAL
            match written:
                case Written.TAKEN:
                    self._note_success(sent, now)
                    self._not_before = 0.0 if self._has_more else self._next
                case Written.LATER:
                    self._note_delay(sent, now)
                case Written.REFUSED:
                    self._is_refused = True
            if self._is_refused:
                self._forget()
            elif self._is_kept:
                self._reports.due(self, self._not_before)
            self._changed.notify_all()

    def _note_success(self, sent: Report | None, now: float) -> None:
        self._late_since, self._written_at = None, now
        if sent is not None:
            self._lines_written += len(sent.lines)
            self._size -= sum(len(line) or 1 for line in sent.lines)
        self._settled = self._taken if self._is_kept else self._asked

    def _note_delay(self, sent: Report | None, now: float) -> None:
        if sent is not None:
            self._lines.extendleft(reversed(sent.lines))
            self._percent = sent.percent if self._percent is None else self._percent
        self._late_since = now if self._late_since is None else self._late_since
        if now - self._late_since > self._reports.lease.total_seconds():
            _log.warning("job %s: what it reported could not be written for a lease, and is left out", self._job_id)
            self._forget()

    def _schedule(self, until: float) -> None:
        now = time.monotonic()
        waits = now >= self._next and self._late_since is None
        if waits:
            self._next = now + INTERVAL
        if not self._reports.due(self, now if waits else self._next):
            self.write()
        elif waits and not self._wait_for(partial(self._is_settled, self._asked), until):
            self._late_since = time.monotonic()

    def _is_settled(self, call: int) -> bool:
        return self._settled >= call or self._is_refused

    def _wait_for(self, done: Callable[[], bool], until: float) -> bool:
        """Wait until an instant at most, and no longer than the database takes anything; False: in vain."""
        return self._changed.wait_for(lambda: done() or self._late_since is not None, until - time.monotonic())
