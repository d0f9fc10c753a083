"""More processes than one run the same application."""

import os
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.acceptance.apps.harness import CONSUMER, Consumer, at_once
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance


def test_under_the_reloader_only_the_serving_child_runs_jobs_and_each_runs_once(
    consumer: Consumer, tmp_path: Path
) -> None:
    source = Path(shutil.copy(CONSUMER, tmp_path / "consumer.py"))
    first = consumer.store.add_orphan("quick")
    served = consumer.serve(server="flask", application=source, debug=True)
    child = wait_until(lambda: serving_process(consumer), 30, "the serving child")
    consumer.wait_for_states(COMPLETED=1)
    assert parent_of(child) == served.pid

    source.touch()
    successor = wait_until(lambda: (pid := serving_process(consumer)) != child and pid, 30, "the reload")
    second = consumer.store.add_orphan("quick")
    consumer.wait_for_states(COMPLETED=2)
    assert parent_of(successor) == served.pid
    consumer.run("quick")
    runs = {run.job_id: run.pid for run in consumer.store.runs()}
    assert (runs[first], runs[second]) == (child, successor)
    assert len(consumer.store.runs()) == 3
    assert consumer.store.attempts() == {1}
    assert threads_of(served.pid) == 1
    assert threads_of(successor) > 1


@pytest.mark.parametrize(("workers", "batch"), [(4, 100), (8, 5)])
def test_orphans_run_once_each_whatever_the_number_of_workers(
    postgres_consumer: Consumer, tmp_path: Path, workers: int, batch: int
) -> None:
    consumer, gate = postgres_consumer, tmp_path / "gate"
    orphans = [consumer.store.add_orphan("gate", {"file": str(gate)}) for _ in range(40)]
    consumer.serve(
        "--workers",
        str(workers),
        recovery_batch_size=batch,
        recovery_redispatch_after=0.1,
        processing_concurrency_limit=40 // workers,
    )
    processes = consumer.processes(workers)
    wait_until(lambda: len(consumer.store.runs()) == 40, 30, "all workers to be busy")
    gate.touch()
    consumer.wait_for_states(COMPLETED=40)
    consumer.run("quick")
    runs = [run for run in consumer.store.runs() if run.job_id in orphans]
    assert sorted(run.job_id for run in runs) == sorted(orphans)
    assert Counter(run.pid for run in runs) == dict.fromkeys(processes, 40 // workers)
    assert len(consumer.store.runs()) == 41
    assert consumer.store.attempts() == {1}
    assert consumer.new_trouble() == []


def test_short_orphans_run_once_each_while_all_workers_compete_for_them(postgres_consumer: Consumer) -> None:
    consumer = postgres_consumer
    consumer.serve("--workers", "4", processing_concurrency_limit=2, processing_poll_interval=0.02)
    consumer.processes(4)
    orphans = [consumer.store.add_orphan("quick") for _ in range(40)]
    consumer.wait_for_states(COMPLETED=40)
    assert sorted(run.job_id for run in consumer.store.runs()) == sorted(orphans)
    assert consumer.store.attempts() == {1}
    assert consumer.new_trouble() == []


def test_every_worker_knows_a_job_as_soon_as_it_was_accepted(postgres_consumer: Consumer) -> None:
    consumer = postgres_consumer
    consumer.serve("--workers", "4")
    processes = consumer.processes(4)
    codes: Counter[int] = Counter()
    for _ in range(50):
        location = consumer.submit("quick").headers["Location"]
        codes.update(at_once([lambda url=location: consumer.http.get(url).status_code] * 20))
    consumer.wait_for_states(COMPLETED=50)
    assert codes == {200: 1000}
    assert len(consumer.store.runs()) == 50
    assert {run.pid for run in consumer.store.runs()} <= processes
    assert consumer.new_trouble() == []


def test_a_stream_on_any_worker_ends_with_the_jobs_last_event(postgres_consumer: Consumer) -> None:
    consumer = postgres_consumer
    consumer.serve("--workers", "4")
    consumer.processes(4)
    for _ in range(10):
        urls = [consumer.submit("quick").json()["eventsUrl"] for _ in range(5)]
        ends = at_once([lambda url=url: consumer.http.get(url).text.rpartition("event: ")[2] for url in urls])
        assert [end.partition("\n")[0] for end in ends] == ["complete"] * 5
    assert consumer.new_trouble() == []


def serving_process(consumer: Consumer) -> int | None:
    """The process that answers a request, or None while there is none."""
    with suppress(httpx.TransportError):
        return int(consumer.http.get("/").json()["pid"])
    return None


def parent_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("PPid:")[2].split()[0])


def threads_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))
