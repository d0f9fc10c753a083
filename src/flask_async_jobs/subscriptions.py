"""Places from which jobs and batches are followed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from flask_async_jobs.states import JobStatus


class State(Protocol):
    """The state of a job or of a batch."""

    @property
    def status(self) -> JobStatus:
        """Where it stands."""
        ...

    @property
    def revision(self) -> int:
        """What grows with each change."""
        ...


S = TypeVar("S", bound=State)


class Source(Protocol):
    """What states are read from: the store of jobs or that of batches."""

    def find_all(self, ids: Collection[UUID], /) -> Mapping[UUID, State]:
        """Return those states that there are, in one query."""
        ...


class Subscription(Generic[S]):
    """A place from which one job or batch is followed. States that nobody takes wait in a bounded queue."""

    def __init__(
        self,
        followed: tuple[Source, UUID],
        limit: int,
        release: Callable[[Subscription[Any]], None],
        *,
        is_stream: bool = False,
    ) -> None:
        self.followed = followed
        self.is_stream = is_stream
        self._limit = limit
        self._release = release
        self._changed = threading.Condition()
        self._states: deque[S] = deque()
        self._last: S | None = None
        self.is_over = False
        """Whether nothing more will come: the place was lost or given back, or the row is gone."""

    def begin(self, known: S) -> None:
        """Take a state as known, so that only what came after it is told, and once."""
        with self._changed:
            self._states = deque(state for state in self._states if state.revision > known.revision)
            self._last = self._states[-1] if self._states else known

    def offer(self, state: S | None) -> None:
        """Tell the state as it was read; None: the row is gone."""
        with self._changed:
            if state is not None and self._is_told(state):
                return  # and wake nobody: there may be thousands
            if state is None:
                self.is_over = True
            else:
                self._last = state
                self._states.append(state)
                self.is_over = len(self._states) > self._limit
            self._changed.notify_all()

    def _is_told(self, state: S) -> bool:
        """Return whether this is the last state, or was read before a later one that is known from elsewhere."""
        last = self._last
        if last is None:
            return False
        return state == last or (state.revision < last.revision and not state.status.is_terminal)

    def next(self, timeout: float) -> S | None:
        """Return the next state, or None if none comes within `timeout` seconds or nothing more will."""
        with self._changed:
            self._changed.wait_for(lambda: self._states or self.is_over, timeout)
            return self._states.popleft() if self._states and not self.is_over else None

    def close(self) -> None:
        """Give the place back; once is enough."""
        with self._changed:
            self.is_over = True
            self._changed.notify_all()
        self._release(self)
