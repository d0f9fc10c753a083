"""Many handlers report as fast as they can: rows are written in place, and requests are answered meanwhile."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import quantiles
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine, text

from tests.acceptance.apps.harness import Consumer
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

HANDLERS, THREADS, SECONDS = 20, 8, 6
WRITES = (
    "SELECT n_tup_upd AS updates, n_tup_hot_upd AS in_place FROM pg_stat_user_tables WHERE relname = 'async_jobs'"
)


def test_twenty_handlers_that_report_in_a_loop_write_in_place_and_hold_up_no_request(
    postgres_consumer: Consumer, postgres_url: str
) -> None:
    consumer = postgres_consumer
    pool = json.dumps({"pool_size": HANDLERS + 10})
    options = {"ENGINE_OPTIONS": pool, "processing_concurrency_limit": HANDLERS}
    consumer.serve("--workers", "1", "--threads", str(THREADS), **options)
    reader = create_engine(postgres_url, isolation_level="REPEATABLE READ")
    fill_pool(consumer, reader)
    with reader.connect() as snapshot:
        snapshot.execute(text("SELECT count(*) FROM async_jobs"))
        accepted = [consumer.submit("slow", {"n": SECONDS, "every": 0}) for _ in range(HANDLERS)]
        wait_until(lambda: len(consumer.store.runs()) == HANDLERS, 10, "all handlers")
        times, until = [], time.monotonic() + SECONDS - 2
        while time.monotonic() < until:
            begun = time.monotonic()
            answer = consumer.http.get(accepted[len(times) % HANDLERS].headers["Location"])
            times.append(time.monotonic() - begun)
            assert answer.status_code == 200
    shown = [consumer.http.get(each.headers["Location"]).json()["percentComplete"] for each in accepted]
    assert min(shown) >= 50, "what was reported last is what is told"
    assert [consumer.follow(each).json()["percentComplete"] for each in accepted] == [100] * HANDLERS
    with reader.connect() as connection:
        updates, in_place = connection.execute(text(WRITES)).one()
    reader.dispose()
    first, second = times[: len(times) // 2], times[len(times) // 2 :]
    reports = updates - 2 * HANDLERS  # a claim and a completion stand in an index
    print(f"{reports} reports, {in_place / reports:.1%} in place; p95 {p95(first):.3f} s, then {p95(second):.3f} s")
    assert reports <= HANDLERS * 2 * (SECONDS + 1), "twice a second"
    assert in_place > 0.8 * reports
    assert p95(second) < max(3 * p95(first), 1.0)
    assert consumer.new_trouble() == []


def fill_pool(consumer: Consumer, engine: Engine) -> None:
    """Make the server connect as often as its threads can at one moment.

    Connections write to pages of their own. So a row finds room beside it for as long as several take turns, which
    a server that was just started has no reason for.
    """
    waiting = text("SELECT count(*) FROM pg_locks WHERE relation = 'async_jobs'::regclass AND NOT granted")
    with ThreadPoolExecutor(THREADS) as clients, engine.begin() as connection:
        connection.execute(text("LOCK TABLE async_jobs IN ACCESS EXCLUSIVE MODE"))
        for _ in range(THREADS):
            clients.submit(consumer.http.get, f"/jobs/{uuid4()}/status")
        wait_until(lambda: connection.execute(waiting).scalar_one() >= THREADS, 10, "the requests")


def p95(times: list[float]) -> float:
    return quantiles(times, n=20)[-1]
