"""The checker: what must hold of everything that was seen of the jobs, whatever broke meanwhile. Pure functions.

Instants are seconds since the epoch, all by the clock of the database.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

TERMINAL: Final = frozenset({"COMPLETED", "FAILED", "CANCELLED"})
LEGAL: Final = {
    None: {"PENDING"},
    "PENDING": {"PROCESSING", "CANCELLED"},
    "PROCESSING": {"PENDING", *TERMINAL},
}


@dataclass(frozen=True, slots=True)
class Accepted:
    """A client sent `key` and was answered with 202 and this job."""

    key: str
    job_id: str


@dataclass(frozen=True, slots=True)
class Job:
    """A row of the library's table at the end."""

    job_id: str
    key: str | None
    status: str
    attempt: int
    error_code: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """An execution of the handler, as the handler noted it. Without `ended_at` it did not reach its end."""

    job_id: str
    attempt: int
    token: str
    started_at: float
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A committed change of a job's status or token; `old` is None for the insert.

    `lease` is when the lease lapses that the row had before, and `recovered` whether recovery made the change.
    """

    job_id: str
    old: str | None
    new: str
    at: float
    old_token: str | None = None
    new_token: str | None = None
    attempt: int = 0
    lease: float | None = None
    recovered: bool = False


@dataclass(frozen=True)
class History:
    """Everything that was seen: the answers, the rows, the runs, and the changes in the order they were made."""

    accepted: Sequence[Accepted]
    jobs: Sequence[Job]
    runs: Sequence[Run]
    changes: Sequence[Change]
    max_attempts: int

    @cached_property
    def changes_of(self) -> dict[str, list[Change]]:
        """The changes of each job, the oldest first."""
        return _grouped(self.changes, lambda change: change.job_id)

    @cached_property
    def runs_of(self) -> dict[str, list[Run]]:
        """The runs of each job."""
        return _grouped(self.runs, lambda run: run.job_id)

    @cached_property
    def run_by_token(self) -> dict[str, Run]:
        """The run of each attempt."""
        return {run.token: run for run in self.runs}


def findings(history: History) -> list[str]:
    """Return a sentence for each thing that must not have happened; none when all is well."""
    return [sentence for check in CHECKS for sentence in check(history)]


def lost(history: History) -> Iterator[str]:
    """Every job that a client was promised is in the table."""
    stored = {job.job_id for job in history.jobs}
    for answer in history.accepted:
        if answer.job_id not in stored:
            yield f"lost: job {answer.job_id} was answered with 202 and is not in the table"


def unfinished(history: History) -> Iterator[str]:
    """Every job has ended."""
    for job in history.jobs:
        if job.status not in TERMINAL:
            yield f"unfinished: job {job.job_id} is still {job.status} in attempt {job.attempt}"


def doubled(history: History) -> Iterator[str]:
    """One key is one job, for every client that sent it."""
    pairs = {(answer.key, answer.job_id) for answer in history.accepted}
    pairs |= {(job.key, job.job_id) for job in history.jobs if job.key is not None}
    for key, count in Counter(key for key, _ in pairs).items():
        if count > 1:
            yield f"doubled: the key {key} stands for {count} jobs"
    for job in history.jobs:
        if job.key is None:
            yield f"doubled: job {job.job_id} has no key, and every client sent one"


def too_many_attempts(history: History) -> Iterator[str]:
    """A job runs at most once in each attempt, and has at most as many attempts as its type allows."""
    for job in history.jobs:
        runs = len(history.runs_of.get(job.job_id, ()))
        if not runs <= job.attempt <= history.max_attempts:
            yield f"attempts: job {job.job_id} ran {runs} times in {job.attempt} of {history.max_attempts} attempts"
    for token, count in Counter(run.token for run in history.runs).items():
        if count > 1:
            yield f"attempts: the attempt {token} ran {count} times"


def failed_early(history: History) -> Iterator[str]:
    """A job fails only when its attempts are used up: nothing that breaks around it is its fault."""
    for job in history.jobs:
        spent = job.attempt >= history.max_attempts and job.error_code == "attempts-exhausted"
        if job.status == "FAILED" and not spent:
            yield f"failed early: job {job.job_id} failed with {job.error_code} in attempt {job.attempt}"


def illegal_changes(history: History) -> Iterator[str]:
    """A job goes only where the states allow, leaves no terminal state, and was seen at every step."""
    for job_id, changes in history.changes_of.items():
        for change in changes:
            if change.old in TERMINAL:
                yield f"terminal: job {job_id} left {change.old} for {change.new}"
            elif change.old == change.new == "PROCESSING":
                yield f"two attempts: job {job_id} was given to {change.new_token} while {change.old_token} had it"
            elif change.new not in LEGAL[change.old]:
                yield f"illegal: job {job_id} went from {change.old} to {change.new}"
        for before, after in pairwise(changes):
            if (before.new, before.new_token) != (after.old, after.old_token):
                yield f"unseen: job {job_id} was {before.new}, and next left {after.old}"
    for job in history.jobs:
        path = history.changes_of.get(job.job_id)
        if not path or path[0].old is not None or path[-1].new != job.status:
            yield f"unseen: job {job.job_id} is {job.status}, which is not where its changes lead"


def unfenced_claims(history: History) -> Iterator[str]:
    """Each attempt has a number and a token of its own, and only a dead one is recovered."""
    claims = [change for change in history.changes if change.new == "PROCESSING"]
    for token, count in Counter(claim.new_token for claim in claims).items():
        if token is None or count > 1:
            yield f"two attempts: {count} claims have the token {token}"
    for job_id, changes in history.changes_of.items():
        for before, after in pairwise(changes):
            if after.new == "PROCESSING" and after.attempt != before.attempt + 1:
                yield f"attempts: job {job_id} was claimed as attempt {after.attempt} after {before.attempt}"
    for change in history.changes:
        if change.recovered and change.lease is not None and change.lease > change.at:
            early = change.lease - change.at
            yield f"two attempts: job {change.job_id} was recovered {early:.3f} s before its lease lapsed"


def stray_runs(history: History) -> Iterator[str]:
    """A handler runs only for an attempt that was claimed, and not before that."""
    claims = {change.new_token: change for change in history.changes if change.new == "PROCESSING"}
    for run in history.runs:
        claim = claims.get(run.token)
        if claim is None or (claim.job_id, claim.attempt) != (run.job_id, run.attempt):
            yield f"stray: job {run.job_id} ran as {run.token}, attempt {run.attempt}, which was never claimed"
        elif run.started_at < claim.at:
            yield f"stray: job {run.job_id} ran {claim.at - run.started_at:.3f} s before it was claimed"


def false_completions(history: History) -> Iterator[str]:
    """A COMPLETED job was completed once, by the attempt that had it, after the handler of that attempt ended."""
    for job in history.jobs:
        path = history.changes_of.get(job.job_id, ())
        completions = [change for change in path if change.new == "COMPLETED"]
        if len(completions) != (job.status == "COMPLETED"):
            yield f"completions: job {job.job_id} is {job.status} and was completed {len(completions)} times"
        for change in completions:
            run = history.run_by_token.get(change.old_token or "")
            if run is None or run.ended_at is None or run.ended_at > change.at:
                yield f"completions: job {job.job_id} was completed before its attempt {change.old_token} ended"


CHECKS: Final[Sequence[Callable[[History], Iterator[str]]]] = (
    lost,
    unfinished,
    doubled,
    too_many_attempts,
    failed_early,
    illegal_changes,
    unfenced_claims,
    stray_runs,
    false_completions,
)


def overlaps(history: History) -> int:
    """Return how many runs began while an earlier run of the job had not ended, for information.

    The process of the earlier one lived but could not renew its lease: the fence, not the clock, keeps its outcome
    out. A run that never ended is not counted, because its process may be dead.
    """
    count = 0
    for runs in history.runs_of.values():
        for before, after in pairwise(sorted(runs, key=lambda run: run.started_at)):
            count += before.ended_at is not None and after.started_at < before.ended_at
    return count


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)
