"""Scenarios S53 and S85: workers forked from a process with connections, and workers of green threads."""

import json
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import httpx
import pytest

from tests.acceptance.apps.harness import CONSUMER, Consumer
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

PRELOADED = CONSUMER.with_name("preloaded.py")


@pytest.mark.parametrize("threads", ["1", "4"])
def test_workers_that_were_forked_from_a_process_with_a_pool_share_no_connection(
    postgres_consumer: Consumer, threads: str
) -> None:
    consumer, count = postgres_consumer, 125
    served = consumer.serve("--preload", "--workers", "4", "--threads", threads, application=PRELOADED)
    processes = consumer.processes(4)
    backends: dict[int, set[int]] = defaultdict(set)
    forbidden: set[int] = set()

    def mixed(number: int) -> str:
        job_id = str(consumer.submit("ret", {"value": number}).json()["jobId"])
        assert consumer.http.get(f"/jobs/{job_id}/status").json()["jobId"] == job_id
        told = consumer.http.get(f"/echo/{number}").json()
        assert told["number"] == number
        backends[told["pid"]].add(told["backend"])
        forbidden.add(told["forbidden"])
        assert consumer.http.delete(f"/jobs/{job_id}").json()["jobId"] == job_id
        return job_id

    with ThreadPoolExecutor(8) as clients:
        ids = list(clients.map(mixed, range(count)))
    wait_until(lambda: consumer.store.states().keys() <= {"COMPLETED", "CANCELLED"}, 30, "the end of all jobs")
    rows = [consumer.store.job(each) for each in ids]
    for number, row in enumerate(rows):
        assert row.result is None if row.status == "CANCELLED" else json.loads(row.result) == number
    assert {run.pid for run in consumer.store.runs()} <= processes

    assert backends.keys() == processes
    used = [backend for each in backends.values() for backend in each]
    assert len(used) == len(set(used))
    assert forbidden.isdisjoint(used)
    assert len(forbidden) == 1
    alive = consumer.store.backends()
    assert all(each & alive for each in backends.values())
    assert "psycopg" not in served.log_text()
    assert consumer.new_trouble() == []


def test_a_locked_row_stops_no_other_request_and_no_other_job_under_gevent(postgres_consumer: Consumer) -> None:
    consumer, answers = postgres_consumer, list[httpx.Response]()
    served = consumer.serve("-k", "gevent")
    ids = [consumer.submit("slow", {"n": 7, "every": 0.2}).json()["jobId"] for _ in range(8)]
    wait_until(lambda: len(consumer.store.runs()) == 8, 10, "the runs")
    locked, *others = ids
    waiting = Thread(target=lambda: answers.append(consumer.http.delete(f"/jobs/{locked}")))
    slowest = 0.0
    with consumer.store.locked(locked):
        waiting.start()
        before = [percent_of(consumer, each) for each in others]
        unlocked, quick = time.monotonic() + 5, 0
        while (start := time.monotonic()) < unlocked:
            assert consumer.run("quick").json()["status"] == "COMPLETED"
            assert consumer.http.get(f"/jobs/{locked}/status").json()["status"] == "PROCESSING"
            quick += 1
            slowest = max(slowest, time.monotonic() - start)
        assert answers == []
        assert all(percent_of(consumer, each) > was for each, was in zip(others, before, strict=True))
    waiting.join(10)
    assert [answer.status_code for answer in answers] == [202]
    assert slowest < 2
    consumer.wait_for_states(COMPLETED=7 + quick, CANCELLED=1)
    assert quick > 5
    assert consumer.store.attempts() == {1}
    assert len(consumer.store.runs()) == 8 + quick
    assert "Using worker: gevent" in served.log_text()
    assert consumer.new_trouble() == []


def percent_of(consumer: Consumer, job_id: str) -> int:
    return int(consumer.http.get(f"/jobs/{job_id}/status").json()["percentComplete"])
