"""What a handler finds around it, and what it leaves behind."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.acceptance.apps.harness import CONSUMER, Consumer, consuming
from tests.serving import Serve
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

TWINS = CONSUMER.with_name("twins.py")


@pytest.fixture
def single(consumer: Consumer) -> Consumer:
    """The consumer, served by one process that runs one job at a time."""
    consumer.serve("--threads", "4", processing_concurrency_limit=1)
    return consumer


def test_a_handler_has_its_application_and_no_request_in_a_first_and_in_a_recovered_run(
    consumer: Consumer,
) -> None:
    orphan = consumer.store.add_orphan("context")
    served = consumer.serve("--threads", "4")
    first = consumer.run("context")
    consumer.wait_for_states(COMPLETED=2)
    notes = {note["job"]: note for note in map(json.loads, consumer.store.notes())}
    assert notes.keys() == {orphan, first.json()["jobId"]}
    for note in notes.values():
        assert note["colour"] == "green"
        assert note["request"].startswith("Working outside of request context.")
    assert served.log_text().count("WARNING consumer: the colour is green") == 2


def test_two_applications_in_one_process_give_their_handlers_their_own_configuration(
    postgres_url: str, sqlite_url: str, serve: Serve, red_and_blue: tuple[Consumer, Consumer]
) -> None:
    red, blue = red_and_blue
    red.serve("--threads", "4", application=TWINS, RED_DATABASE_URL=postgres_url, BLUE_DATABASE_URL=sqlite_url)
    for consumer, colour in ((red, "red"), (blue, "blue")):
        consumer.http.base_url = f"{red.server.url}/{colour}"
        ended = consumer.run("context")
        [note] = map(json.loads, consumer.store.notes())
        assert (note["job"], note["colour"]) == (ended.json()["jobId"], colour)
    assert {run.pid for run in red.store.runs()} == {run.pid for run in blue.store.runs()}


@pytest.fixture
def red_and_blue(postgres_url: str, sqlite_url: str, serve: Serve) -> Iterator[tuple[Consumer, Consumer]]:
    with ExitStack() as stack:
        yield (
            stack.enter_context(consuming(postgres_url, serve)),
            stack.enter_context(consuming(sqlite_url, serve)),
        )


def test_a_job_that_spoils_its_session_does_not_spoil_the_next_on_its_thread(single: Consumer) -> None:
    failed = single.run("spoil")
    assert (failed.status_code, failed.json()["code"]) == (422, "processing-error")
    single.store.add_note("meanwhile")
    assert single.run("copy").json()["status"] == "COMPLETED"
    assert single.store.notes() == ["meanwhile", "copy of meanwhile"]
    assert len({run.thread for run in single.store.runs()}) == 1


def test_an_idle_application_has_no_connection_checked_out(single: Consumer) -> None:
    for handler in ("spoil", "copy", "read", "quick"):
        single.run(handler)
    single.run("leave", {"how": "flush"})
    wait_until(lambda: single.http.get("/pool").json() == {"checkedOut": 0}, 5, "the pool to be full again")


@pytest.mark.parametrize(
    "how",
    [
        "add",
        "flush",
        "insert",
        "bulk",
        "text",
        "connection",
        "savepoint released",
        "savepoint rolled back",
        "after a commit",
        "in a second session",
    ],
)
def test_what_a_handler_leaves_uncommitted_is_rolled_back_with_a_warning(served: Consumer, how: str) -> None:
    before, told = served.store.notes(), warnings_of(served)
    assert served.run("leave", {"how": how}).json()["status"] == "COMPLETED"
    assert served.run("quick").json()["status"] == "COMPLETED"
    assert served.store.notes() == before
    warnings = warnings_of(served)[len(told) :]
    assert ["rolled back" in warning for warning in warnings] == [True]


def test_a_handler_that_commits_or_only_reads_is_not_warned_about(served: Consumer) -> None:
    told = warnings_of(served)
    for handler in ("copy", "read", "quick"):
        assert served.run(handler).json()["status"] == "COMPLETED"
    assert warnings_of(served) == told


def warnings_of(consumer: Consumer) -> list[str]:
    """Return the warnings so far, without those about the pool that each process gives when it starts."""
    lines = consumer.server.log_text().splitlines()
    return [line for line in lines if line.startswith("WARNING") and "the pool has" not in line]
