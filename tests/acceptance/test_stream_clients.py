"""Clients as they are published follow a job: each sees the end once, and stops."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import ServerSentEvent, connect_sse
from sseclient import SSEClient

from tests.acceptance.apps.harness import Consumer
from tests.acceptance.apps.streams import events_of_orphan, told
from tests.needs import PREFIX
from tests.servers.browser import Browser
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

FOLLOW = Path(__file__).parent / "apps" / "follow.cjs"
ENDS = {
    "complete": ("slow", {"n": 1.2, "every": 0.2}),
    "failed": ("boom", {"text": "no"}),
    "cancelled": ("quick", None),
}
LISTEN = """
  globalThis.told = [];
  globalThis.source = new EventSource(%s);
  for (const name of ["message", "status", "progress", "complete", "failed", "cancelled"])
    source.addEventListener(name, (event) => told.push([event.type, event.lastEventId, event.data]));
  null
"""


@pytest.fixture(params=list(ENDS))
def followed(request: pytest.FixtureRequest, streaming: Consumer) -> tuple[str, str]:
    """The URL of a stream, and the event with which it will end."""
    end: str = request.param
    if end == "cancelled":
        url = events_of_orphan(streaming)
        assert streaming.http.delete(url.removesuffix("/events")).status_code == 202
        return url, end
    return streaming.submit(*ENDS[end]).json()["eventsUrl"], end


@pytest.mark.needs("chromium")
def test_a_browser_sees_the_end_once_and_stops(
    streaming: Consumer, browser: Browser, followed: tuple[str, str]
) -> None:
    url, end = followed
    with browser.open(str(streaming.http.base_url)) as page:
        page.evaluate(LISTEN % json.dumps(url))
        wait_until(lambda: page.evaluate("source.readyState") == 2, 20, "the last attempt")
        check(page.evaluate("told"), end)
    wait_until(lambda: streaming.answers(url) == [200, 204], 5, lambda: str(streaming.answers(url)))


@pytest.mark.needs("node")
def test_the_package_eventsource_sees_the_end_once_and_stops(
    streaming: Consumer, followed: tuple[str, str]
) -> None:
    url, end = followed
    require_package("eventsource")
    done = subprocess.run(
        [str(shutil.which("node")), str(FOLLOW), url], capture_output=True, text=True, timeout=30, check=True
    )
    check([json.loads(line) for line in done.stdout.splitlines()], end)
    wait_until(lambda: streaming.answers(url) == [200, 204], 5, lambda: str(streaming.answers(url)))


def test_httpx_sse_sees_no_empty_event(streaming: Consumer, followed: tuple[str, str]) -> None:
    url, end = followed
    seen = list(events_of_httpx_sse(streaming.http, url))
    check([(event.event, event.id, event.data) for event in seen], end)
    assert [event.retry for event in seen] == [2000, *[None] * (len(seen) - 1)]
    assert list(events_of_httpx_sse(streaming.http, url, seen[-1].id)) == []


def test_sseclient_sees_no_empty_event(streaming: Consumer, followed: tuple[str, str]) -> None:
    url, end = followed
    with streaming.http.stream("GET", url) as answer:
        check([(event.event, event.id, event.data) for event in SSEClient(answer.iter_bytes()).events()], end)


@pytest.mark.needs("curl")
def test_curl_shows_each_event_as_it_happens(streaming: Consumer) -> None:
    url = streaming.submit(*ENDS["complete"]).json()["eventsUrl"]
    command = [str(shutil.which("curl")), "--silent", "--fail", "-N", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        seen = list(told(curl.stdout))
    assert curl.returncode == 0
    check([(event.event, event.id, json.dumps(event.data)) for event in seen], "complete")
    assert len(seen) > 3
    assert max(event.delay for event in seen[1:]) < 1


def check(seen: list[Any], end: str) -> None:
    """Check the (name, id, data) of all events: none is empty, none comes twice, one end comes last."""
    names, ids = [name for name, _, _ in seen], [int(id) for _, id, _ in seen]
    assert (set(names[:-1]) <= {"status", "progress"}, names[-1]) == (True, end)
    assert ids == sorted(set(ids))
    assert all(json.loads(data)["jobId"] for _, _, data in seen)


def events_of_httpx_sse(http: httpx.Client, url: str, seen: str = "") -> Iterator[ServerSentEvent]:
    with connect_sse(http, "GET", url, headers={"Last-Event-ID": seen} if seen else {}) as source:
        yield from source.iter_sse()


def require_package(name: str) -> None:
    """Skip the test where Node.js does not find a package; NODE_PATH tells it where packages are."""
    folders = os.environ.get("NODE_PATH", "").split(os.pathsep)
    if not any((Path(folder) / name).is_dir() for folder in folders if folder):
        pytest.skip(f"{PREFIX}node with the package {name}")
