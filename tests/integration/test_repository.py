"""Every transition: where it is legal, from a wrong state, and with a stale token."""

from datetime import timedelta
from uuid import uuid4

import pytest

from flask_async_jobs import JobError, JobRepository, JobStatus
from tests.integration.stores import LEASE, RULES, back_date, claimed, count, edit, new_job, row

ERROR = JobError.of("Broken", "in two", "broken")


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


def end(repository, how):
    """Bring a job into a terminal state."""
    claim = claimed(repository)
    match how:
        case "COMPLETED":
            assert repository.complete(claim.job_id, claim.execution_token)
        case "FAILED":
            assert repository.fail(claim.job_id, claim.execution_token, ERROR)
        case "CANCELLED":
            assert repository.cancel(claim.job_id)
    return claim


REPORTS = {
    "progress": lambda r, job, token: r.progress(job, token, 50, LEASE),
    "mark_effect_started": lambda r, job, token: r.mark_effect_started(job, token),
    "complete": lambda r, job, token: r.complete(job, token) is not None,
    "fail": lambda r, job, token: r.fail(job, token, ERROR) is not None,
}
FENCED = {**REPORTS, "retry": lambda r, job, token: r.retry(job, token, LEASE)}
terminal = pytest.mark.parametrize("how", ["COMPLETED", "FAILED", "CANCELLED"])
each_report = pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
each_fenced = pytest.mark.parametrize("report", FENCED.values(), ids=FENCED)


def test_a_submission_is_stored_as_pending(repository):
    job = repository.insert(new_job(owner="o"))
    assert (job.status, job.attempt, job.revision, job.owner) == (JobStatus.PENDING, 0, 1, "o")
    assert job.created_at == job.last_updated_at
    assert repository.find(job.job_id) == job


@pytest.mark.parametrize("key", [{"idempotency_key": "k"}, {"coalescing_key": "c"}])
def test_a_second_submission_with_a_taken_key_is_refused_and_not_stored(repository, engine, key):
    assert repository.insert(new_job(**key))
    assert repository.insert(new_job(**key)) is None
    assert count(engine) == 1


def test_a_key_is_its_owners_own(repository):
    assert repository.insert(new_job(owner="a", idempotency_key="k"))
    assert repository.insert(new_job(owner="b", idempotency_key="k"))
    assert repository.find_by_key("a", "k").view.owner == "a"
    assert repository.find_by_key("c", "k") is None


@terminal
def test_a_coalescing_key_is_free_when_its_job_has_ended(repository, how):
    claim = claimed(repository, coalescing_key="c")
    assert repository.find_in_flight("c").view.job_id == claim.job_id
    match how:
        case "COMPLETED":
            repository.complete(claim.job_id, claim.execution_token)
        case "FAILED":
            repository.fail(claim.job_id, claim.execution_token, ERROR)
        case "CANCELLED":
            repository.cancel(claim.job_id)
    assert repository.find_in_flight("c") is None
    assert repository.insert(new_job(coalescing_key="c"))


def test_another_owners_job_is_not_found(repository):
    job = repository.insert(new_job(owner="a"))
    assert repository.find(job.job_id, "a")
    assert repository.find(job.job_id, "b") is None
    assert repository.cancel(job.job_id, "b") is None
    assert repository.cancel(job.job_id, "a")


def test_a_claim_starts_an_attempt_with_a_token_and_a_lease(repository, engine):
    claim = claimed(repository, payload='{"n":1.00}')
    stored = row(engine, claim.job_id)
    assert (stored.status, stored.attempt, stored.execution_token) == ("PROCESSING", 1, claim.execution_token)
    assert stored.lease_expires_at == stored.last_updated_at + LEASE
    assert stored.started_at >= stored.created_at
    assert (claim.payload, claim.attempt, stored.revision) == ('{"n":1.00}', 1, 2)


def test_a_detached_job_has_no_lease(repository, engine):
    claim = claimed(repository, "detached")
    assert row(engine, claim.job_id).lease_expires_at is None


def test_claims_take_the_oldest_first_and_no_more_than_asked(repository, engine):
    jobs = [repository.insert(new_job()).job_id for _ in range(4)]
    for age, job in enumerate(reversed(jobs)):
        back_date(engine, job, LEASE * (age + 1))
    assert [c.job_id for c in repository.claim(RULES, 3, LEASE)] == jobs[:3]
    assert [c.job_id for c in repository.claim(RULES, 3, LEASE)] == jobs[3:]
    assert repository.claim(RULES, 3, LEASE) == []


def test_claims_take_neither_other_types_nor_jobs_that_are_not_due(repository, engine):
    repository.insert(new_job("unknown"))
    later = repository.insert(new_job(run_at=repository.insert(new_job()).created_at + LEASE))
    assert len(repository.claim(RULES, 9, LEASE)) == 1
    assert repository.find(later.job_id).status is JobStatus.PENDING


def test_tokens_of_one_claim_differ(repository):
    for _ in range(5):
        repository.insert(new_job())
    claims = repository.claim(RULES, 5, LEASE)
    assert len({claim.execution_token for claim in claims}) == 5
    assert all(claim.execution_token.version == 4 for claim in claims)


@each_fenced
def test_a_report_of_the_running_attempt_is_taken(repository, report):
    claim = claimed(repository)
    before = repository.find(claim.job_id)
    assert report(repository, claim.job_id, claim.execution_token)
    after = repository.find(claim.job_id)
    assert after.revision == before.revision + 1
    assert after.last_updated_at >= before.last_updated_at


@each_fenced
def test_a_report_with_a_stale_token_changes_nothing(repository, engine, report):
    claim = claimed(repository)
    before = row(engine, claim.job_id)
    assert not report(repository, claim.job_id, uuid4())
    assert row(engine, claim.job_id) == before


@terminal
@each_fenced
def test_a_report_on_a_job_that_has_ended_changes_nothing(repository, engine, report, how):
    claim = end(repository, how)
    before = row(engine, claim.job_id)
    assert not report(repository, claim.job_id, claim.execution_token)
    assert row(engine, claim.job_id) == before


@each_report
def test_a_report_without_a_token_is_taken_while_some_attempt_runs(repository, report):
    claim = claimed(repository)
    assert report(repository, claim.job_id, None)


@each_report
def test_a_report_on_a_pending_or_unknown_job_is_refused(repository, report):
    job = repository.insert(new_job())
    assert not report(repository, job.job_id, None)
    assert not report(repository, job.job_id, uuid4())
    assert not report(repository, uuid4(), None)


@terminal
def test_a_job_that_has_ended_cannot_be_cancelled(repository, engine, how):
    claim = end(repository, how)
    before = row(engine, claim.job_id)
    assert repository.cancel(claim.job_id) is None
    assert row(engine, claim.job_id) == before


def test_an_ended_job_holds_neither_token_nor_lease(repository, engine):
    for how in ("COMPLETED", "FAILED", "CANCELLED"):
        stored = row(engine, end(repository, how).job_id)
        assert (stored.status, stored.execution_token, stored.lease_expires_at) == (how, None, None)
        assert stored.completed_at == stored.last_updated_at


def test_a_job_that_is_tried_again_is_pending_and_due_after_the_delay(repository, engine):
    claim = claimed(repository, coalescing_key="c")
    assert repository.progress(claim.job_id, claim.execution_token, 50, LEASE)
    assert repository.retry(claim.job_id, claim.execution_token, LEASE)
    job = repository.find(claim.job_id)
    assert (job.status, job.attempt, job.percent_complete) == (JobStatus.PENDING, 1, None)
    assert row(engine, claim.job_id).available_at == job.last_updated_at + LEASE
    assert repository.claim(RULES, 1, LEASE) == []
    assert repository.insert(new_job(coalescing_key="c")) is None
    back_date(engine, claim.job_id, LEASE, "available_at")
    assert repository.claim(RULES, 1, LEASE)[0].attempt == 2


def test_an_attempt_that_does_not_count_is_given_back(repository):
    claim = claimed(repository)
    assert repository.retry(claim.job_id, claim.execution_token, timedelta(0), counted=False)
    assert repository.find(claim.job_id).attempt == 0
    assert repository.claim(RULES, 1, LEASE)[0].attempt == 1


def test_a_renewal_prolongs_leases_and_changes_nothing_else(repository, engine):
    claim = claimed(repository)
    detached = claimed(repository, "detached")
    before = row(engine, claim.job_id)
    assert repository.renew([claim, detached], LEASE * 10) == 1
    after = row(engine, claim.job_id)
    assert after.lease_expires_at > before.lease_expires_at + LEASE
    assert (after.last_updated_at, after.revision) == (before.last_updated_at, before.revision)


def test_the_first_instant_of_an_effect_stays(repository, engine):
    claim = claimed(repository)
    repository.mark_effect_started(claim.job_id, claim.execution_token)
    first = row(engine, claim.job_id).effect_started_at
    repository.mark_effect_started(claim.job_id, claim.execution_token)
    assert row(engine, claim.job_id).effect_started_at == first


def test_last_updated_never_goes_back(repository, engine):
    claim = claimed(repository)
    ahead = repository.find(claim.job_id).created_at + LEASE * 100
    edit(engine, claim.job_id, last_updated_at=ahead)
    assert repository.complete(claim.job_id, claim.execution_token) == ahead


def test_only_completed_jobs_are_fresh_and_only_within_the_window(repository, engine):
    for how in ("FAILED", "CANCELLED"):
        end(repository, how)
    assert repository.find_fresh("work of a", LEASE) is None
    claim = end(repository, "COMPLETED")
    assert repository.find_fresh("work of a", LEASE).view.job_id == claim.job_id
    assert repository.last_completed_at("work of a") == repository.find(claim.job_id).completed_at
    back_date(engine, claim.job_id, LEASE * 2, "completed_at")
    assert repository.find_fresh("work of a", LEASE) is None
    assert repository.last_completed_at("work of nothing") is None
