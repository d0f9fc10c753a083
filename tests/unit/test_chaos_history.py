"""The checker of the chaos scenarios: it is silent about a good history, and finds each way in which one is bad."""

from dataclasses import replace

import pytest

from chaos.history import Accepted, Change, History, Job, Run, findings, overlaps
from chaos.stories import stories
from chaos.throughput import rate, recovery_time


def claim(at, token, attempt=1, **fields):
    return Change("a", "PENDING", "PROCESSING", at, None, token, attempt, **fields)


def leave(at, new, token, attempt=1, **fields):
    return Change("a", "PROCESSING", new, at, token, None, attempt, **fields)


INSERT = Change("a", None, "PENDING", 1.0)
GOOD = History(
    accepted=[Accepted("key", "a"), Accepted("key", "a")],
    jobs=[Job("a", "key", "COMPLETED", 1)],
    runs=[Run("a", 1, "t1", 2.1, 2.9)],
    changes=[INSERT, claim(2.0, "t1"), leave(3.0, "COMPLETED", "t1")],
    max_attempts=3,
)
RECOVERED = replace(
    GOOD,
    jobs=[Job("a", "key", "COMPLETED", 2)],
    runs=[Run("a", 1, "t1", 2.1), Run("a", 2, "t2", 6.1, 6.9)],
    changes=[
        INSERT,
        claim(2.0, "t1"),
        leave(5.0, "PENDING", "t1", lease=4.0, recovered=True),
        claim(6.0, "t2", 2),
        leave(7.0, "COMPLETED", "t2", 2),
    ],
)
SPENT = replace(
    GOOD,
    jobs=[Job("a", "key", "FAILED", 1, "attempts-exhausted")],
    runs=[],
    changes=[INSERT, claim(2.0, "t1"), leave(5.0, "FAILED", "t1", lease=4.0, recovered=True)],
    max_attempts=1,
)


def job(history, **fields):
    return replace(history, jobs=[replace(history.jobs[0], **fields)])


def change(history, index, **fields):
    changes = list(history.changes)
    changes[index] = replace(changes[index], **fields)
    return replace(history, changes=changes)


def more(history, *changes):
    return replace(history, changes=[*history.changes, *changes])


def first_run(history, **fields):
    first, *others = history.runs
    return replace(history, runs=[replace(first, **fields), *others])


@pytest.mark.parametrize(
    "history",
    [
        GOOD,
        RECOVERED,
        SPENT,
        replace(GOOD, accepted=[]),
        first_run(RECOVERED, ended_at=6.5),
        replace(RECOVERED, runs=RECOVERED.runs[1:]),
    ],
    ids=["completed", "recovered", "spent", "the answer was lost", "a late worker", "the claim was lost"],
)
def test_a_history_in_which_all_is_well_gives_no_finding(history):
    assert findings(history) == []


@pytest.mark.parametrize(
    ("history", "word"),
    [
        (replace(GOOD, accepted=[Accepted("other", "b")]), "lost"),
        (replace(GOOD, jobs=[]), "lost"),
        (
            replace(GOOD, jobs=[Job("a", "key", "PROCESSING", 1)], changes=GOOD.changes[:2]),
            "unfinished",
        ),
        (replace(GOOD, jobs=[Job("a", "key", "PENDING", 0)], runs=[], changes=[INSERT]), "unfinished"),
        (replace(GOOD, accepted=[Accepted("key", "a"), Accepted("key", "b")]), "doubled"),
        (replace(GOOD, jobs=[*GOOD.jobs, Job("b", "key", "COMPLETED", 1)]), "doubled"),
        (job(GOOD, key=None), "doubled"),
        (replace(GOOD, runs=[*GOOD.runs, Run("a", 1, "t1", 2.2, 2.8)]), "attempts"),
        (job(GOOD, attempt=4), "attempts"),
        (job(GOOD, attempt=0), "attempts"),
        (change(RECOVERED, 3, attempt=1), "attempts"),
        (job(SPENT, error_code="processing-error"), "failed early"),
        (replace(SPENT, max_attempts=5), "failed early"),
        (more(GOOD, Change("a", "COMPLETED", "FAILED", 4.0)), "terminal"),
        (more(GOOD, Change("a", "COMPLETED", "PENDING", 4.0)), "terminal"),
        (more(SPENT, Change("a", "FAILED", "COMPLETED", 9.0)), "terminal"),
        (more(GOOD, Change("a", "PENDING", "COMPLETED", 4.0)), "illegal"),
        (change(GOOD, 0, new="PROCESSING", new_token="t1"), "illegal"),
        (change(RECOVERED, 2, new="PROCESSING", new_token="t2"), "two attempts"),
        (change(RECOVERED, 2, lease=5.5), "two attempts"),
        (change(change(RECOVERED, 3, new_token="t1"), 4, old_token="t1"), "two attempts"),
        (change(GOOD, 1, new_token=None), "two attempts"),
        (replace(GOOD, changes=[INSERT, GOOD.changes[2]]), "unseen"),
        (replace(GOOD, changes=GOOD.changes[1:]), "unseen"),
        (replace(GOOD, changes=GOOD.changes[:2]), "unseen"),
        (replace(GOOD, changes=[]), "unseen"),
        (change(GOOD, 2, old_token="t2"), "unseen"),
        (first_run(GOOD, token="t9"), "stray"),
        (first_run(RECOVERED, attempt=2), "stray"),
        (first_run(GOOD, started_at=1.5), "stray"),
        (replace(GOOD, runs=[]), "completions"),
        (first_run(GOOD, ended_at=None), "completions"),
        (first_run(GOOD, ended_at=3.5), "completions"),
        (more(GOOD, leave(4.0, "COMPLETED", "t1")), "completions"),
        (job(GOOD, status="CANCELLED"), "completions"),
    ],
)
def test_each_way_in_which_a_history_is_bad_is_found(history, word):
    assert any(sentence.startswith(f"{word}:") for sentence in findings(history))


def test_a_completion_by_an_attempt_that_was_recovered_is_found_although_the_row_looks_right():
    written_by_the_first_while_the_second_runs = first_run(RECOVERED, ended_at=6.4)
    second = replace(RECOVERED.runs[1], ended_at=7.5)
    bad = replace(
        written_by_the_first_while_the_second_runs,
        runs=[written_by_the_first_while_the_second_runs.runs[0], second],
    )
    assert [sentence.partition(":")[0] for sentence in findings(bad)] == ["completions"]


def test_a_run_that_begins_before_an_earlier_one_has_ended_is_counted():
    assert overlaps(GOOD) == overlaps(RECOVERED) == 0
    assert overlaps(first_run(RECOVERED, ended_at=6.5)) == 1


def test_the_rate_counts_completions_within_the_time():
    assert rate([0.5, 1.0, 1.5, 2.0, 2.5], 1.0, 2.0) == 2.0


def test_the_recovery_time_ends_with_the_first_second_that_is_as_good_as_before():
    baseline, steady = 10.0, [number / 10 for number in range(1, 21)]
    silent_until = [20 + number / 10 for number in range(1, 31)]
    assert recovery_time(steady, baseline, 0.0, 1.0, 2.0) == 0.0
    assert recovery_time(steady, baseline, 0.7, 0.8, 2.0) == pytest.approx(0.9)
    assert recovery_time(silent_until, baseline, 17.0, 18.0, 23.0) == pytest.approx(3.0, abs=0.1)
    assert recovery_time([], baseline, 17.0, 18.0, 23.0) is None


def test_the_story_of_a_job_that_a_finding_names_is_told_in_the_order_of_time():
    name = "00000000-0000-4000-8000-000000000000"
    history = replace(
        GOOD,
        changes=[replace(each, job_id=name) for each in GOOD.changes],
        runs=[replace(each, job_id=name) for each in GOOD.runs],
    )
    [told] = stories(history, [f"lost: job {name} is gone", f"unseen: job {name}", "silent: nobody"])
    assert [line.split()[0] for line in told.splitlines()[1:]] == ["0.000", "1.000", "1.100", "1.900", "2.000"]
