"""The job store against a small model of it: whatever is called, in any order, with tokens of any age."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule, run_state_machine_as_test
from sqlalchemy import Engine, text

from flask_async_jobs import ANY_OWNER, IdempotencyKeyConflict, JobError, JobRepository, TooManyActive
from flask_async_jobs import payloads as json
from flask_async_jobs.config import Settings
from flask_async_jobs.models import jobs_table
from flask_async_jobs.policy import DefaultJobPolicy
from flask_async_jobs.records import Claim
from flask_async_jobs.recovery import Recovery
from flask_async_jobs.registry import HandlerRegistry
from flask_async_jobs.states import Disposition
from flask_async_jobs.submission import Payload, Submissions
from tests.integration import audit
from tests.integration.apps import Clock
from tests.integration.stores import LEASE

SECOND = timedelta(seconds=1)
WINDOW, SILENT, IMPATIENT, REDISPATCH = 60 * SECOND, 900 * SECOND, 10 * SECOND, 60 * SECOND
TYPES: dict[str, dict[str, Any]] = {
    "once": {},
    "thrice": {"max_attempts": 3, "coalesce": True, "freshness": WINDOW},
    "detached": {"max_attempts": 2, "detached": True, "max_active": 2},
    "impatient": {"max_attempts": 3, "processing_timeout": IMPATIENT},
}
SETTINGS = Settings(freshness_enabled=True, recovery_processing_timeout=SILENT, recovery_redispatch_after=REDISPATCH)
BROKEN = JobError.of("Broken", None, "broken")
ACTIVE = ("PENDING", "PROCESSING")


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
    effect_started_at: datetime | None = None
    completed_at: datetime | None = None
    percent_complete: int | None = None
    error_code: str | None = None

    @property
    def order(self) -> tuple[datetime, datetime]:
        return self.available_at, self.created_at


@dataclass
class Worker:
    """A process, as far as recovery asks for one: a `Dispatcher` that runs what the machine claimed for it."""

    claims: dict[UUID, Claim] = field(default_factory=dict)

    @property
    def running(self) -> list[UUID]:
        return list(self.claims)

    def wake(self) -> None:
        pass


class Jobs(RuleBasedStateMachine):
    jobs = Bundle("jobs")
    claims = Bundle("claims")
    workers = st.sampled_from("AB")
    reports = st.sampled_from(["progress", "mark_effect_started", "complete", "fail", "retry", "retry_uncounted"])

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self.clock = Clock()
        self.repository = JobRepository(engine, clock=self.clock)
        self.submissions = Submissions(self.repository, DefaultJobPolicy(SETTINGS), SETTINGS)
        self.registry = HandlerRegistry()
        for type, options in TYPES.items():
            self.registry.register(type, lambda: None, options)
        self.rows: dict[UUID, Expected] = {}
        self.issued: list[tuple[UUID, UUID]] = []
        self.worker = {"A": Worker(), "B": Worker()}
        self.uncounted: UUID | None = None
        self.seen = 0
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM async_jobs"))
            connection.execute(text("DELETE FROM job_audit"))

    # What the model says

    def write(self, row: Expected, **values: Any) -> None:
        for name, value in {**values, "revision": row.revision + 1, "last_updated_at": self.clock.now}.items():
            setattr(row, name, value)

    def end(self, row: Expected, status: str, **values: Any) -> None:
        ended = {"execution_token": None, "lease_expires_at": None, "completed_at": self.clock.now}
        self.write(row, status=status, **ended, **values)

    def give_back(self, row: Expected, **values: Any) -> None:
        ended = {"execution_token": None, "lease_expires_at": None, "percent_complete": None}
        self.write(row, status="PENDING", **ended, **values)

    def answers(self, type: str, owner: str, key: str | None, force: bool) -> tuple[Any, list[Expected]]:
        """Return how a submission ends: an error, or a disposition with the jobs that it may name."""
        rows = list(self.rows.values())
        if key and (bound := [row for row in rows if (row.owner, row.idempotency_key) == (owner, key)]):
            return (Disposition.REPLAYED if bound[0].type == type else IdempotencyKeyConflict), bound
        same = [row for row in rows if (row.type, row.owner) == (type, owner)]
        done = [row for row in same if row.status == "COMPLETED" and row.completed_at > self.clock.now - WINDOW]
        if done and not force and "freshness" in TYPES[type]:
            return Disposition.FRESH, [row for row in done if row.completed_at == max(d.completed_at for d in done)]
        active = [row for row in same if row.status in ACTIVE]
        if active and "coalesce" in TYPES[type]:
            return Disposition.COALESCED, active
        cap = TYPES[type].get("max_active", 1000)
        full = sum(row.type == type and row.status in ACTIVE for row in rows) >= cap
        return (TooManyActive if full else Disposition.CREATED), []

    def is_zombie(self, row: Expected, mine: list[UUID]) -> bool:
        if row.status != "PROCESSING":
            return False
        silence = self.clock.now - row.last_updated_at
        if row.type == "impatient" and silence > IMPATIENT:
            return True
        if row.lease_expires_at is None:
            return silence > SILENT
        return row.lease_expires_at < self.clock.now and row.execution_token not in mine

    # What may happen

    @rule(target=jobs, type=st.sampled_from([*TYPES]), owner=st.sampled_from(["", "o"]), force=st.booleans(),
          key=st.sampled_from([None, None, "k", "l"]), delay=st.sampled_from([None, None, 5]))  # fmt: skip
    def submit(self, type, owner, key, force, delay):
        answer, named = self.answers(type, owner, key, force)
        run_at = delay and self.clock.now + delay * SECOND
        payload = Payload(None, json.fingerprint({}))
        try:
            submission = self.submissions.submit(
                self.registry.get(type), payload, idempotency_key=key, owner=owner, force=force, run_at=run_at
            )
        except (IdempotencyKeyConflict, TooManyActive) as error:
            assert error.__class__ is answer
            return multiple()
        assert submission.disposition is answer
        if answer is not Disposition.CREATED:
            assert submission.job.job_id in {row.id for row in named}
            return multiple()
        now, job_id = self.clock.now, submission.job.job_id
        self.rows[job_id] = Expected(job_id, type, owner, key, now, now, run_at or now)
        return job_id

    @rule(target=claims, worker=workers, limit=st.integers(1, 3))
    def claim(self, worker, limit):
        due = sorted(
            (row for row in self.rows.values() if row.status == "PENDING" and row.available_at <= self.clock.now),
            key=lambda row: row.order,
        )
        taken = self.repository.claim(self.registry.rules(), limit, LEASE)
        rows = [self.rows[claim.job_id] for claim in taken]
        assert [row.order for row in rows] == [row.order for row in due[:limit]]
        for row, claim in zip(rows, taken, strict=True):
            lease = None if row.type == "detached" else self.clock.now + LEASE
            started = {"execution_token": claim.execution_token, "lease_expires_at": lease}
            self.write(row, status="PROCESSING", attempt=row.attempt + 1, **started)
            assert claim.attempt == row.attempt
            self.issued.append((claim.job_id, claim.execution_token))
            self.worker[worker].claims[claim.execution_token] = claim
        return multiple(*((claim.job_id, claim.execution_token) for claim in taken))

    @rule(claim=claims, what=reports, number=st.integers(0, 100))
    def report(self, claim, what, number):
        self._report(*claim, what, number)

    @rule(claim=claims, other=claims, what=reports)
    def report_with_the_token_of_another(self, claim, other, what):
        self._report(claim[0], other[1], what, 7)

    @rule(job=jobs, what=st.sampled_from(["progress", "mark_effect_started", "complete", "fail"]))
    def report_without_a_token(self, job, what):
        self._report(job, None, what, 8)

    def _report(self, job: UUID, token: UUID | None, what: str, number: int) -> None:
        row, store = self.rows[job], self.repository
        taken = row.status == "PROCESSING" and token in (None, row.execution_token)
        counted, delay = what != "retry_uncounted", number * SECOND
        match what:
            case "progress":
                answer: object = store.progress(job, token, number, LEASE)
                lease = row.lease_expires_at and self.clock.now + LEASE
                then = lambda: self.write(row, percent_complete=number, lease_expires_at=lease)  # noqa: E731
            case "mark_effect_started":
                answer = store.mark_effect_started(job, token)
                then = lambda: self.write(row, effect_started_at=row.effect_started_at or self.clock.now)  # noqa: E731
            case "complete":
                answer = store.complete(job, token)
                then = lambda: self.end(row, "COMPLETED", percent_complete=100)  # noqa: E731
            case "fail":
                answer = store.fail(job, token, BROKEN)
                then = lambda: self.end(row, "FAILED", error_code="broken")  # noqa: E731
            case _:
                answer = store.retry(job, token, delay, counted=counted)
                back = {"attempt": row.attempt - (not counted), "available_at": self.clock.now + delay}
                then = lambda: self.give_back(row, **back)  # noqa: E731
        assert bool(answer) is taken
        if taken:
            then()
            self.uncounted = None if counted else job
        if what not in ("progress", "mark_effect_started"):
            for worker in self.worker.values():
                worker.claims.pop(token, None)

    @rule(job=jobs, owner=st.sampled_from([ANY_OWNER, "", "o"]))
    def cancel(self, job, owner):
        row = self.rows[job]
        taken = row.status in ACTIVE and owner in (ANY_OWNER, row.owner)
        assert bool(self.repository.cancel(job, owner)) is taken
        if taken:
            self.end(row, "CANCELLED")

    @rule(worker=workers)
    def renew(self, worker):
        claims = list(self.worker[worker].claims.values())
        rows = [self.rows[c.job_id] for c in claims if self.rows[c.job_id].execution_token == c.execution_token]
        leased = [row for row in rows if row.lease_expires_at]
        assert self.repository.renew(claims, LEASE) == len(leased)
        for row in leased:
            row.lease_expires_at = self.clock.now + LEASE

    @rule(seconds=st.sampled_from([1, 11, 31, 61, 901]))
    def let_time_pass(self, seconds):
        self.clock.tick(seconds)

    @rule(worker=workers)
    def recover(self, worker):
        dispatcher = self.worker[worker]
        zombies = [row for row in self.rows.values() if self.is_zombie(row, dispatcher.running)]
        waiting = [
            row
            for row in self.rows.values()
            if row.status == "PENDING" and row.available_at <= self.clock.now > row.last_updated_at + REDISPATCH
        ]
        sweep = Recovery(self.repository, self.registry.rules, SETTINGS, lambda: dispatcher).sweep
        assert sweep() == len(zombies) + len(waiting)
        for row in zombies:
            if max(row.attempt, 1) < TYPES[row.type].get("max_attempts", 1):
                self.give_back(row)
            else:
                code = "attempts-exhausted" if row.attempt > 1 else "processing-timeout"
                self.end(row, "FAILED", error_code=code)

    @rule(worker=workers)
    def restart(self, worker):
        self.worker[worker].claims.clear()

    # What always holds

    @invariant()
    def every_row_is_as_the_model_has_it(self):
        with self.engine.connect() as connection:
            rows = connection.execute(jobs_table().select()).all()
        assert {row.id for row in rows} == set(self.rows)
        for row in rows:
            expected = vars(self.rows[row.id])
            assert {name: getattr(row, name) for name in expected} == expected
            assert_possible(row)
        assert_unique((row.owner, row.idempotency_key) for row in rows if row.idempotency_key)
        assert_unique(row.coalescing_key for row in rows if row.coalescing_key and row.status in ACTIVE)
        assert_unique(row.execution_token for row in rows if row.execution_token)

    @invariant()
    def every_change_was_lawful(self):
        for change in audit.changes(self.engine, self.seen):
            self.seen = change.number
            audit.assert_lawful(change, uncounted=change.job_id == str(self.uncounted))
        self.uncounted = None

    def teardown(self):
        assert_unique(token for _, token in self.issued)
        assert_unique(job for job, token in self.issued if self.repository.is_running(job, token))


def assert_unique(values) -> None:
    assert not [value for value, times in Counter(values).items() if times > 1]


def assert_possible(row) -> None:
    """Check the constraints of the table, without asking it."""
    assert (row.status not in ACTIVE) == (row.completed_at is not None)
    assert (row.status == "FAILED") == (row.error_title is not None)
    assert (row.status == "PROCESSING") == (row.execution_token is not None)
    assert row.percent_complete is None or 0 <= row.percent_complete <= 100
    assert row.attempt >= 0
    assert row.revision >= 1
    assert row.batch_id is row.item_id is row.item_position is None


def test_no_order_of_calls_breaks_the_store(engine):
    audit.install(engine)
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA synchronous=OFF")
    run_state_machine_as_test(
        lambda: Jobs(engine),
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
