"""Events come as they happen, whatever stands between."""

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.acceptance.apps.harness import Consumer, client
from tests.acceptance.apps.streams import Told, events_of_orphan, told
from tests.servers.nginx import nginx_before

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

NGINX = pytest.mark.needs("nginx")
SLOW = {"n": 2.5, "every": 0.5}
READ_TIMEOUT = 1
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store, no-transform",
    "Content-Length": None,
    "Content-Encoding": None,
}


@NGINX
@pytest.mark.parametrize("extra", ["", "proxy_http_version 1.0;", "proxy_http_version 1.1;"])
def test_each_event_comes_through_nginx_within_a_second(streaming: Consumer, tmp_path: Path, extra: str) -> None:
    with through_nginx(streaming, tmp_path, extra) as front:
        accepted = front.post("/jobs/slow", json=SLOW)
        assert accepted.status_code == 202
        with front.stream("GET", path_of(accepted, "eventsUrl"), headers={"Accept-Encoding": "gzip"}) as answer:
            seen = list(told(answer.iter_lines()))
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        check_live(seen)
        status = front.get(path_of(accepted, "statusUrl"))
        assert (status.status_code, status.json()["status"]) == (200, "COMPLETED")
        assert front.delete(path_of(accepted, "cancelUrl")).status_code == 409


def test_the_answer_asks_proxies_not_to_hold_or_change_it(streaming: Consumer) -> None:
    with streaming.http.stream("GET", events_of_orphan(streaming)) as answer:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert answer.headers["X-Accel-Buffering"] == "no"


@NGINX
def test_a_silent_stream_outlives_the_read_timeout_of_a_proxy(streaming: Consumer, tmp_path: Path) -> None:
    url, start = events_of_orphan(streaming), time.monotonic()
    with through_nginx(streaming, tmp_path, f"proxy_read_timeout {READ_TIMEOUT}s;") as front:
        lines = []
        with front.stream("GET", httpx.URL(url).path) as answer:
            for line in answer.iter_lines():
                lines.append(line)
                if time.monotonic() > start + 3 * READ_TIMEOUT:
                    break
    assert lines.count(": ok") >= 12
    assert [event.event for event in told(lines)] == ["status"]
    assert streaming.answers(url) in ([], [200])


@pytest.mark.parametrize("server", ["flask", "gthread", "gevent", pytest.param("nginx", marks=NGINX)])
def test_headers_and_snapshot_come_at_once_from_a_job_that_does_not_move(
    consumer: Consumer, tmp_path: Path, server: str
) -> None:
    if server == "flask":
        consumer.serve(server="flask")
    else:
        consumer.serve("--worker-class", "gevent" if server == "gevent" else "gthread", "--threads", "4")
    url = events_of_orphan(consumer)
    with through_nginx(consumer, tmp_path) if server == "nginx" else direct(consumer) as http:
        headers, snapshot = min(first_bytes(http, httpx.URL(url).path) for _ in range(3))
    assert (headers < 0.5, snapshot < 0.5) == (True, True), (headers, snapshot)


@pytest.mark.needs("curl")
@pytest.mark.parametrize("worker", ["gthread", "gevent"])
def test_a_client_that_speaks_http_1_0_is_told_the_end_by_the_close(consumer: Consumer, worker: str) -> None:
    consumer.serve("--worker-class", worker, "--threads", "4")
    json, work = ["-H", "Content-Type: application/json"], ["-d", '{"n": 1, "every": 0.3}']
    accepted = curl_1_0(*json, *work, f"{consumer.http.base_url}/jobs/slow")
    url = httpx.Response(202, content=accepted.partition("\r\n\r\n")[2]).json()["eventsUrl"]
    head, _, body = curl_1_0("-N", url).partition("\r\n\r\n")
    assert "transfer-encoding" not in head.lower()
    assert body.startswith(": ok\nretry: 2000\nevent: ")
    names = [event.event for event in told(body.splitlines())]
    assert (set(names[:-1]) <= {"status", "progress"}, names[-1]) == (True, "complete")
    status = curl_1_0(url.replace("/events", "/status"))
    assert '"COMPLETED"' in status
    assert " 409 " in curl_1_0("-X", "DELETE", url.removesuffix("/events")).partition("\r\n")[0]


def first_bytes(http: httpx.Client, path: str) -> tuple[float, float]:
    """Return the seconds until the headers of a stream and its snapshot have come."""
    start = time.monotonic()
    with http.stream("GET", path) as answer:
        headers = time.monotonic() - start
        event = next(told(answer.iter_lines()))
        snapshot = time.monotonic() - start
    assert (event.event, event.data["status"]) == ("status", "PENDING")
    return headers, snapshot


def check_live(seen: list[Told]) -> None:
    """Check that the events of `slow` came one by one, each within a second of its change, and then the end."""
    assert len(seen) > 4
    assert [event.event for event in seen[-2:]] == ["progress", "complete"]
    assert max(event.delay for event in seen[1:]) < 1  # the first is a snapshot, as old as the state


@contextmanager
def through_nginx(consumer: Consumer, home: Path, extra: str = "") -> Iterator[httpx.Client]:
    with nginx_before(str(consumer.http.base_url), home, extra) as url, client() as front:
        front.base_url = url
        yield front


@contextmanager
def direct(consumer: Consumer) -> Iterator[httpx.Client]:
    yield consumer.http


def path_of(accepted: httpx.Response, name: str) -> str:
    return httpx.URL(accepted.json()[name]).path


def curl_1_0(*args: str) -> str:
    command = [str(shutil.which("curl")), "--silent", "--http1.0", "--raw", "--include", "--max-time", "20", *args]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode()
