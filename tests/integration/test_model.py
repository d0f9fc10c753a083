"""The job store against a small model of it: whatever is called, in any order, with tokens of any age."""

from collections import Counter
from uuid import UUID, uuid4

import pytest
from flask import Flask
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Engine, create_engine, event, text

from flask_async_jobs import ANY_OWNER, AsyncJobs, IdempotencyKeyConflict, JobError, JobRepository, TooManyActive
from flask_async_jobs.models import jobs_table
from flask_async_jobs.recovery import Recovery
from flask_async_jobs.states import Disposition
from tests.integration import audit
from tests.integration.apps import Clock
from tests.integration.model import ACTIVE, SECOND, SETTINGS, TYPES, Model, Worker
from tests.integration.processes import application
from tests.integration.stores import LEASE

BROKEN = JobError.of("Broken", None, "broken")
SIZE = settings(max_examples=100, stateful_step_count=40, deadline=None, derandomize=True, database=None)

types = st.sampled_from([*TYPES, "thrice"])
owners = st.sampled_from(["", "o"])
workers = st.sampled_from("AB")
times = st.sampled_from([1, 10, 30, 31, 60, 901])
anonymous = st.sampled_from(["progress", "mark_effect_started", "complete", "fail"])
fenced = anonymous | st.sampled_from(["retry", "retry_uncounted"])


class Jobs(RuleBasedStateMachine):
    jobs = Bundle("jobs")
    claims = Bundle("claims")

    def __init__(self, library: AsyncJobs, app: Flask, engine: Engine, clock: Clock) -> None:
        super().__init__()
        self.library = library
        self.rules = app.extensions["async_jobs"].registry.rules
        self.engine = engine
        self.clock = clock
        self.model = Model(clock)
        self.repository = JobRepository(engine, clock=clock)
        self.workers = {"A": Worker(), "B": Worker()}
        self.issued: list[tuple[UUID, UUID]] = []
        self.uncounted: set[UUID] = set()
        self.seen = 0
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM async_jobs"))
            connection.execute(text("DELETE FROM job_audit"))

    @initialize(target=jobs, several=st.lists(types, min_size=1, max_size=4))
    def begin(self, several):
        return multiple(*(job for type in several for job in self._submit(type).values))

    @rule(target=jobs, type=types, owner=owners, key=st.sampled_from([None, None, "k", "l"]), force=st.booleans())
    def submit(self, type, owner, key, force):
        return self._submit(type, owner, key, force)

    @rule(target=jobs, type=types, delay=st.integers(-5, 40))
    def submit_for_later(self, type, delay):
        return self._submit(type, delay=delay)

    def _submit(self, type, owner="", key=None, force=False, delay=None):
        self.clock.tick(1e-6)  # no two jobs are of one age, so that it is clear which one is the oldest
        answer, named = self.model.answer(type, owner, key, force)
        run_at = None if delay is None else self.clock.now + delay * SECOND
        try:
            submission = self.library.submit(type, idempotency_key=key, owner=owner, force=force, run_at=run_at)
        except (IdempotencyKeyConflict, TooManyActive) as error:
            refused, submission = error.__class__, None
        assert (submission.disposition if submission else refused) is answer
        if submission is None:
            return multiple()
        if answer is not Disposition.CREATED:
            assert submission.job_id in {row.id for row in named}
            return multiple()
        self.model.submit(submission.job_id, type, owner, key, run_at)
        return multiple(submission.job_id)

    @rule(target=claims, worker=workers, limit=st.integers(1, 5))
    def claim(self, worker, limit):
        return self._claim(worker, limit)

    @rule(target=claims, worker=workers, seconds=times)
    def crash_and_claim_again_after(self, worker, seconds):
        for each in self.workers.values():
            each.claims.clear()
        self.recover_after(worker, seconds)
        return self._claim(worker, 5)

    @rule(target=claims, limit=st.integers(1, 5))
    def lose_the_answer_to_a_claim(self, limit):
        mark = uuid4()
        claims = self._claimed(limit, mark)
        given_back = self.repository.give_back([uuid4(), mark])
        self.uncounted = set(given_back)
        assert self.uncounted == {claim.job_id for claim in claims}
        return multiple(*(self.model.give_back(claim) for claim in claims))

    def _claimed(self, limit, mark=None):
        due = self.model.due()[:limit]
        claims = self.repository.claim(self.rules(), limit, LEASE, mark)
        assert [claim.job_id for claim in claims] == [row.id for row in due]
        for claim in claims:
            self.model.claim(claim)
        return claims

    def _claim(self, worker, limit):
        claims = self._claimed(limit)
        for claim in claims:
            self.workers[worker].claims[claim.execution_token] = claim
        attempts = [(claim.job_id, claim.execution_token) for claim in claims]
        self.issued += attempts
        return multiple(*attempts)

    @precondition(lambda self: self.model.running())
    @rule(pick=st.integers(0, 9), what=fenced, number=st.integers(0, 100))
    def report_of_a_running_attempt(self, pick, what, number):
        running = self.model.running()
        row = running[pick % len(running)]
        self._report(row.id, row.execution_token, what, number)

    @rule(claim=claims, what=fenced)
    def report_of_any_attempt_so_far(self, claim, what):
        self._report(*claim, what, 5)

    @rule(claim=claims, other=claims, what=fenced)
    def report_with_the_token_of_another(self, claim, other, what):
        self._report(claim[0], other[1], what, 7)

    @rule(job=jobs, what=anonymous)
    def report_without_a_token(self, job, what):
        self._report(job, None, what, 8)

    def _report(self, job: UUID, token: UUID | None, what: str, number: int) -> None:
        expected, store = self.model.report(job, token, what, number), self.repository
        match what:
            case "progress":
                taken: object = store.progress(job, token, number, LEASE)
            case "mark_effect_started":
                taken = store.mark_effect_started(job, token)
            case "complete":
                taken = store.complete(job, token)
            case "fail":
                taken = store.fail(job, token, BROKEN)
            case _:
                taken = store.retry(job, token, number * SECOND, counted=what == "retry")
                self.uncounted = {job} if taken and what != "retry" else set()
        assert bool(taken) is expected
        if what not in ("progress", "mark_effect_started"):
            for worker in self.workers.values():
                worker.claims.pop(token, None)

    @rule(job=jobs, owner=owners | st.just(ANY_OWNER))
    def cancel(self, job, owner):
        expected = self.model.cancel(job, owner)
        assert bool(self.repository.cancel(job, owner)) is expected

    @rule(worker=workers)
    def renew(self, worker):
        claims = self.workers[worker].claims.values()
        assert self.repository.renew(list(claims), LEASE) == self.model.renew(self.workers[worker])

    @rule(worker=workers, seconds=times)
    def recover_after(self, worker, seconds):
        self.clock.tick(seconds)
        dispatcher = self.workers[worker]
        sweep = Recovery(self.repository, self.rules, SETTINGS, lambda: dispatcher).sweep
        assert sweep() == self.model.recover(dispatcher)

    @rule(seconds=times)
    def let_time_pass(self, seconds):
        self.clock.tick(seconds)

    @rule(worker=workers)
    def restart(self, worker):
        self.workers[worker].claims.clear()

    @invariant()
    def every_row_is_as_the_model_has_it(self):
        with self.engine.connect() as connection:
            rows = connection.execute(jobs_table().select()).all()
        assert {row.id for row in rows} == set(self.model.rows)
        for row in rows:
            expected = vars(self.model.rows[row.id])
            assert {name: getattr(row, name) for name in expected} == expected
            audit.assert_possible(row)
        assert_unique((row.owner, row.idempotency_key) for row in rows if row.idempotency_key)
        assert_unique(row.coalescing_key for row in rows if row.coalescing_key and row.status in ACTIVE)
        assert_unique(row.execution_token for row in rows if row.execution_token)

    @invariant()
    def every_change_was_lawful(self):
        for change in audit.changes(self.engine, self.seen):
            self.seen = change.number
            audit.assert_lawful(change, uncounted=UUID(change.job_id) in self.uncounted)
        self.uncounted = set()

    def teardown(self):
        assert_unique(token for _, token in self.issued)
        assert_unique(job for job, token in self.issued if self.repository.is_running(job, token))


def assert_unique(values) -> None:
    assert not [value for value, times in Counter(values).items() if times > 1]


def check(url: str) -> None:
    engine, clock, library = create_engine(url), Clock(), AsyncJobs()
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda raw, record: raw.execute("PRAGMA synchronous=OFF").close())
    for type, options in TYPES.items():
        library.register(type, lambda: None, **options)
    app = application(library, engine, {"clock": clock}, FRESHNESS_ENABLED=True)
    try:
        audit.install(engine)
        with app.app_context():
            run_state_machine_as_test(lambda: Jobs(library, app, engine, clock), settings=SIZE)
    finally:
        engine.dispose()


@pytest.mark.timeout(600)  # a counterexample is made small before it is shown
class TestOnSQLite:
    def test_no_order_of_calls_breaks_the_store(self, sqlite_url):
        check(sqlite_url)


@pytest.mark.timeout(600)
class TestOnPostgreSQL:
    def test_no_order_of_calls_breaks_the_store(self, postgres_url):
        check(postgres_url)
