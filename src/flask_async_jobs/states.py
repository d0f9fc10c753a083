"""The states of a job and the immutable values that describe one."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID


class JobStatus(enum.StrEnum):
    """Where a job stands. A terminal state is never left, by any writer."""

    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self in TERMINAL


ACTIVE: Final = (JobStatus.PENDING, JobStatus.PROCESSING)
TERMINAL: Final = (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED)


class Disposition(enum.StrEnum):
    """How a submission was answered."""

    CREATED = "created"
    REPLAYED = "replayed"
    FRESH = "fresh"
    COALESCED = "coalesced"


class CancelResult(enum.Enum):
    """What a request to cancel met."""

    CANCELLED = "cancelled"
    ALREADY_TERMINAL = "already-terminal"
    NOT_FOUND = "not-found"


class AnyOwner(enum.Enum):
    """The type of `ANY_OWNER`."""

    ANY = "any"


ANY_OWNER: Final = AnyOwner.ANY
"""Given as `owner=`: look the job up whoever submitted it."""

type_name: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
uuid_form: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

_unstorable = re.compile("[\x00\ud800-\udfff]")

TITLE_LIMIT: Final = 256
DETAIL_LIMIT: Final = 2_000
CODE_LIMIT: Final = 64


def is_type_name(text: str) -> bool:
    """Return whether `text` may name a type: 1-64 of `A-Za-z0-9._-`, and not itself a UUID."""
    return bool(type_name.fullmatch(text)) and not uuid_form.fullmatch(text)


def storable(text: object, limit: int) -> str:
    """Return `text` as every supported database can hold it, cut to `limit` characters.

    NUL and lone surrogates become U+FFFD. An object whose `str()` raises becomes the empty string.
    """
    try:
        plain = str(text)
    except BaseException:  # a foreign __str__ may raise anything, and a failure has to be recorded all the same
        plain = ""
    return _unstorable.sub("\ufffd", plain[:limit])


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a job failed, as it is shown to the client."""

    title: str
    detail: str | None
    code: str

    @classmethod
    def of(cls, title: object, detail: object = None, code: object = None) -> JobError:
        """Build a storable failure: a blank title becomes `Job failed`, a missing code `job-failed`."""
        return cls(
            storable(title, TITLE_LIMIT).strip() or "Job failed",
            None if detail is None else storable(detail, DETAIL_LIMIT),
            storable(code or "", CODE_LIMIT).strip() or "job-failed",
        )


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as it stood at one moment. Instants are aware and in UTC."""

    job_id: UUID
    type: str
    status: JobStatus
    created_at: datetime
    last_updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    percent_complete: int | None
    attempt: int
    effect_started: bool
    error: JobError | None
    owner: str | None
    batch_id: UUID | None
    revision: int
    log_lines: int = 0
    result: Any = None
    result_url: str | None = None


@dataclass(frozen=True, slots=True)
class BatchView:
    """A batch as it stood at one moment: its items are counted, never kept count of.

    Attributes:
        revision: The sum of the items' revisions; grows with each change of one.
        ended_at: When the last of the items that have ended did.
    """

    batch_id: UUID
    type: str
    owner: str | None
    submitted_at: datetime
    total: int
    pending: int
    processing: int
    completed: int
    failed: int
    cancelled: int
    ended_at: datetime | None
    revision: int

    @property
    def status(self) -> JobStatus:
        """PENDING while every item is, COMPLETED when every item has ended, however; PROCESSING in between."""
        if self.pending + self.processing == 0:
            return JobStatus.COMPLETED
        return JobStatus.PENDING if self.pending == self.total else JobStatus.PROCESSING

    @property
    def completed_at(self) -> datetime | None:
        """When the last item ended, or None while one is active."""
        return self.ended_at if self.status is JobStatus.COMPLETED else None


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One item of a batch as it stood at one moment, with its result as JSON text."""

    position: int
    item_id: str
    job_id: UUID
    status: JobStatus
    created_at: datetime
    last_updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    result: str | None
    error: JobError | None
