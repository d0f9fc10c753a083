"""`flask async-jobs list`, `stats` and `purge`, and `worker` in this process, on both databases."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from tests.integration.apps import Clock, Site, TestJobs, serving
from tests.integration.stores import back_date
from tests.integration.test_cli import call, printed
from tests.waiting import wait_until


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def site(engine: Engine, clock: Clock) -> Iterator[Site]:
    """Accepts jobs and runs none."""
    with serving(TestJobs(), engine, init={"clock": clock}) as site:
        yield site


@pytest.fixture
def jobs_of_a_day(site: Site, clock: Clock) -> list[str]:
    """Five jobs, the oldest first; the second was cancelled."""
    made = []
    for type in ("quick", "other", "quick", "other", "quick"):
        made.append(site.submit(type))
        clock.tick(1)
    site.ask("DELETE", f"/jobs/{made[1]}")
    return made


def listed(site: Site, *args: str) -> list[str]:
    return [job["jobId"] for job in printed(site, "list", *args)]


def test_jobs_are_listed_the_newest_first_in_pages(site: Site, jobs_of_a_day: list[str]) -> None:
    newest_first = jobs_of_a_day[::-1]
    assert listed(site) == newest_first
    assert listed(site, "--limit", "2") == newest_first[:2]
    assert listed(site, "--limit", "2", "--after", newest_first[1]) == newest_first[2:4]
    assert listed(site, "--after", newest_first[-1]) == []


def test_jobs_are_listed_by_type_and_state(site: Site, jobs_of_a_day: list[str]) -> None:
    first, cancelled, _, other, _ = jobs_of_a_day
    assert listed(site, "--type", "other") == [other, cancelled]
    assert listed(site, "--status", "cancelled") == [cancelled]
    assert listed(site, "--status", "PENDING", "--type", "other") == [other]
    assert listed(site, "--type", "quick", "--after", other) == [jobs_of_a_day[2], first]


def test_jobs_are_listed_for_people_too(site: Site, jobs_of_a_day: list[str]) -> None:
    lines = call(site, "list", "--limit", "2").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [jobs_of_a_day[4], jobs_of_a_day[3]]
    assert lines[0].split()[1:] == ["PENDING", "2026-06-03T22:00:04Z", "quick"]


@pytest.mark.parametrize(
    "args",
    [
        ("--limit", "0"),
        ("--limit", "1001"),
        ("--status", "DONE"),
        ("--after", "1"),
        ("--after", "3f0b8a54-6f0e-4d0c-9a57-0a8f4f6f2c11"),
    ],
)
def test_a_list_that_cannot_be_is_refused(site: Site, args: tuple[str, ...]) -> None:
    assert call(site, "list", *args).exit_code == 2


def test_stats_count_by_type_and_state(site: Site, jobs_of_a_day: list[str], clock: Clock) -> None:
    clock.tick(5)
    figures = printed(site, "stats")
    assert figures["jobs"] == [
        {"type": "other", "status": "CANCELLED", "jobs": 1},
        {"type": "other", "status": "PENDING", "jobs": 1},
        {"type": "quick", "status": "PENDING", "jobs": 3},
    ]
    assert figures["oldestPendingSeconds"] == 10.0
    assert {"slots", "running", "attemptsLost", "overdueThreads"} <= figures.keys()
    lines = call(site, "stats").stdout.splitlines()
    assert lines[0].split() == ["other", "CANCELLED", "1"]
    assert "oldestPendingSeconds: 10.0" in lines


def test_stats_of_no_jobs_have_no_oldest(site: Site) -> None:
    figures = printed(site, "stats")
    assert (figures["jobs"], figures["oldestPendingSeconds"]) == ([], None)


def test_purge_removes_what_has_ended_long_ago(site: Site, jobs_of_a_day: list[str], clock: Clock) -> None:
    assert call(site, "purge").stdout == "0 jobs purged\n"
    clock.tick(3601)
    assert call(site, "purge", "--older-than", "P1D").stdout == "0 jobs purged\n"
    assert printed(site, "purge", "--older-than", "P1D") == {"purged": 0}
    assert call(site, "purge").stdout == "1 jobs purged\n"
    assert len(listed(site)) == 4
    assert call(site, "purge", "--older-than", "soon").exit_code == 2


def to_the_process(number: int) -> None:
    os.kill(os.getpid(), number)


def to_a_thread_that_does_not_wait(number: int) -> None:
    signal.pthread_kill(threading.get_ident(), number)


@pytest.mark.parametrize("send", [to_the_process, to_a_thread_that_does_not_wait])
def test_a_worker_runs_what_is_due_and_ends_when_it_is_told_to(engine: Engine, send: Callable[[int], None]) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    with serving(TestJobs(), engine, PROCESSING_ENABLED=False) as site:
        waiting = site.submit("quick")
        back_date(engine, waiting, timedelta(minutes=5))

        def end() -> None:
            try:
                site.ended(waiting)
            finally:
                send(signal.SIGTERM)

        ending = threading.Thread(target=end)
        ending.start()
        try:
            result = call(site, "worker")
        finally:
            for number, handler in zip((signal.SIGTERM, signal.SIGINT), before, strict=True):
                signal.signal(number, handler)
        ending.join()
        assert result.exit_code == 0
        assert result.stdout.startswith("running ")
        wait_until(lambda: not site.app.extensions["async_jobs"].started)
