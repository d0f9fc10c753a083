"""A server whose handler never ends still ends in time: the interpreter's exit does not wait for its thread."""

import signal
import time

import pytest

from tests.acceptance.apps.harness import Consumer
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

SHUTDOWN, SLACK = 1, 3


@pytest.mark.parametrize(
    ("server", "options", "how"),
    [
        ("flask", [], signal.SIGINT),
        ("flask", [], signal.SIGTERM),
        ("gunicorn", [], signal.SIGTERM),
        ("gunicorn", ["--threads", "4"], signal.SIGTERM),
        ("gunicorn", ["-k", "gevent"], signal.SIGTERM),
    ],
    ids=["flask interrupted", "flask", "gunicorn sync", "gunicorn gthread", "gunicorn gevent"],
)
def test_a_server_with_a_handler_that_never_ends_still_ends_in_time(
    postgres_consumer: Consumer, server: str, options: list[str], how: signal.Signals
) -> None:
    consumer = postgres_consumer
    served = consumer.serve(*options, server=server, processing_lease=1, shutdown_timeout=SHUTDOWN)
    endless = consumer.submit("silent", {"n": 3600}).json()["jobId"]
    wait_until(consumer.store.runs, 10, "the run")
    start = time.monotonic()
    served.terminate(how)
    served.wait(SHUTDOWN + SLACK)
    assert time.monotonic() - start < SHUTDOWN + SLACK
    assert "WORKER TIMEOUT" not in served.log_text()
    assert consumer.new_trouble() == []

    consumer.serve()
    ended = consumer.end_of(endless)
    assert (ended.status_code, ended.json()["code"]) == (422, "processing-timeout")
    assert len(consumer.store.runs()) == 1
