"""Many handlers report as fast as they can: rows are written in place, and requests are answered meanwhile."""

import json
import time
from statistics import quantiles

import pytest
from sqlalchemy import create_engine, text

from tests.acceptance.apps.harness import Consumer
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

HANDLERS, SECONDS = 20, 6
WRITES = (
    "SELECT n_tup_upd AS updates, n_tup_hot_upd AS in_place FROM pg_stat_user_tables WHERE relname = 'async_jobs'"
)


def test_twenty_handlers_that_report_in_a_loop_write_in_place_and_hold_up_no_request(
    postgres_consumer: Consumer, postgres_url: str
) -> None:
    consumer = postgres_consumer
    pool = json.dumps({"pool_size": HANDLERS + 10})
    consumer.serve("--workers", "1", "--threads", "8", ENGINE_OPTIONS=pool, processing_concurrency_limit=HANDLERS)
    reader = create_engine(postgres_url, isolation_level="REPEATABLE READ")
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


def p95(times: list[float]) -> float:
    return quantiles(times, n=20)[-1]
