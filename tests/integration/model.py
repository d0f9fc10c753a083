"""A small model of the job store: what a row looks like after each call, and which calls are refused."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from flask_async_jobs import ANY_OWNER, IdempotencyKeyConflict, TooManyActive
from flask_async_jobs.config import Settings
from flask_async_jobs.records import Claim
from flask_async_jobs.states import AnyOwner, Disposition
from tests.integration.stores import LEASE

SECOND = timedelta(seconds=1)
WINDOW, SILENT, IMPATIENT, REDISPATCH = 60 * SECOND, 900 * SECOND, 10 * SECOND, 60 * SECOND
TYPES: dict[str, dict[str, Any]] = {
    "once": {},
    "thrice": {"max_attempts": 3, "coalesce": True, "freshness": WINDOW},
    "detached": {"max_attempts": 2, "detached": True, "max_active": 2},
    "impatient": {"max_attempts": 3, "processing_timeout": IMPATIENT},
}
SETTINGS = Settings(
    freshness_enabled=True, recovery_processing_timeout=SILENT, recovery_redispatch_after=REDISPATCH
)
ACTIVE = ("PENDING", "PROCESSING")
UNCLAIMED = {"execution_token": None, "lease_expires_at": None}


@dataclass
class Expected:
    """A row as the model has it; the names are those of the columns."""

    id: UUID
    type: str
    owner: str
    idempotency_key: str | None
    created_at: datetime
    last_updated_at: datetime
    available_at: datetime
    status: str = "PENDING"
    attempt: int = 0
    revision: int = 1
    execution_token: UUID | None = None
    lease_expires_at: datetime | None = None
    started_at: datetime | None = None
    effect_started_at: datetime | None = None
    completed_at: datetime | None = None
    percent_complete: int | None = None
    error_code: str | None = None

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE

    @property
    def order(self) -> tuple[datetime, datetime]:
        """The oldest is claimed first."""
        return self.available_at, self.created_at


@dataclass
class Worker:
    """A process, as far as recovery asks for one: a `Dispatcher` that runs what was claimed for it."""

    claims: dict[UUID, Claim] = field(default_factory=dict)

    @property
    def running(self) -> list[UUID]:
        return list(self.claims)

    def wake(self) -> None:
        pass


class Model:
    """Every row that should be there. Each method says whether the store takes a call, and notes what it writes."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self.rows: dict[UUID, Expected] = {}

    def answer(self, type: str, owner: str, key: str | None, force: bool) -> tuple[Any, list[Expected]]:
        """Return how a submission ends: an error, or a disposition with the jobs that it may name."""
        rows, options = list(self.rows.values()), TYPES[type]
        if key and (bound := [row for row in rows if (row.owner, row.idempotency_key) == (owner, key)]):
            return (Disposition.REPLAYED if bound[0].type == type else IdempotencyKeyConflict), bound
        same = [row for row in rows if (row.type, row.owner) == (type, owner)]
        completed = {row.id: row.completed_at for row in same if row.status == "COMPLETED" and row.completed_at}
        latest = max(completed.values(), default=None)
        if "freshness" in options and not force and latest and latest > self._clock() - WINDOW:
            return Disposition.FRESH, [row for row in same if completed.get(row.id) == latest]
        if "coalesce" in options and (active := [row for row in same if row.is_active]):
            return Disposition.COALESCED, active
        full = sum(row.type == type and row.is_active for row in rows) >= options.get("max_active", 1000)
        return (TooManyActive if full else Disposition.CREATED), []

    def submit(self, job_id: UUID, type: str, owner: str, key: str | None, run_at: datetime | None) -> None:
        now = self._clock()
        self.rows[job_id] = Expected(job_id, type, owner, key, now, now, run_at or now)

    def due(self) -> list[Expected]:
        """Return what can be claimed, the oldest first."""
        due = [row for row in self.rows.values() if row.status == "PENDING" and row.available_at <= self._clock()]
        return sorted(due, key=lambda row: row.order)

    def running(self) -> list[Expected]:
        return [row for row in self.rows.values() if row.status == "PROCESSING"]

    def claim(self, claim: Claim) -> None:
        row, now = self.rows[claim.job_id], self._clock()
        self._write(
            row,
            status="PROCESSING",
            attempt=row.attempt + 1,
            started_at=now,
            execution_token=claim.execution_token,
            lease_expires_at=None if row.type == "detached" else now + LEASE,
        )

    def give_back(self, claim: Claim) -> tuple[UUID, UUID]:
        """Note that nobody got this claim; return the attempt that was none."""
        row = self.rows[claim.job_id]
        self._give_back(row, attempt=row.attempt - 1)
        return claim.job_id, claim.execution_token

    def report(self, job: UUID, token: UUID | None, what: str, number: int) -> bool:
        row, now = self.rows[job], self._clock()
        if row.status != "PROCESSING" or token not in (None, row.execution_token):
            return False
        match what:
            case "progress":
                lease = row.lease_expires_at and now + LEASE
                self._write(row, percent_complete=number, lease_expires_at=lease)
            case "mark_effect_started":
                self._write(row, effect_started_at=row.effect_started_at or now)
            case "complete":
                self._end(row, "COMPLETED", percent_complete=100)
            case "fail":
                self._end(row, "FAILED", error_code="broken")
            case "retry":
                self._give_back(row, available_at=now + number * SECOND)
            case "retry_uncounted":
                self._give_back(row, available_at=now + number * SECOND, attempt=row.attempt - 1)
        return True

    def cancel(self, job: UUID, owner: str | AnyOwner) -> bool:
        row = self.rows[job]
        if not row.is_active or owner not in (ANY_OWNER, row.owner):
            return False
        self._end(row, "CANCELLED")
        return True

    def renew(self, worker: Worker) -> int:
        """Return how many leases of a worker are prolonged; that is no write that anybody sees."""
        own = [row for row in self.rows.values() if row.execution_token in worker.claims and row.lease_expires_at]
        for row in own:
            row.lease_expires_at = self._clock() + LEASE
        return len(own)

    def recover(self, worker: Worker) -> int:
        """Return how many jobs a sweep acts on: the zombies, and those that wait for too long."""
        late = self._clock() - REDISPATCH
        waiting = [row for row in self.due() if row.available_at <= late and row.last_updated_at < late]
        zombies = [row for row in self.rows.values() if self._is_zombie(row, worker)]
        for row in zombies:
            if row.attempt < TYPES[row.type].get("max_attempts", 1):
                self._give_back(row)
            else:
                self._end(
                    row, "FAILED", error_code="attempts-exhausted" if row.attempt > 1 else "processing-timeout"
                )
        return len(zombies) + len(waiting)

    def _is_zombie(self, row: Expected, worker: Worker) -> bool:
        if row.status != "PROCESSING":
            return False
        silence = self._clock() - row.last_updated_at
        if row.type == "impatient" and silence > IMPATIENT:
            return True
        if row.lease_expires_at is None:
            return silence > SILENT
        return row.lease_expires_at < self._clock() and row.execution_token not in worker.claims

    def _end(self, row: Expected, status: str, **values: Any) -> None:
        self._write(row, status=status, completed_at=self._clock(), **UNCLAIMED, **values)

    def _give_back(self, row: Expected, **values: Any) -> None:
        self._write(row, status="PENDING", percent_complete=None, **UNCLAIMED, **values)

    def _write(self, row: Expected, **values: Any) -> None:
        for name, value in {**values, "revision": row.revision + 1, "last_updated_at": self._clock()}.items():
            setattr(row, name, value)
