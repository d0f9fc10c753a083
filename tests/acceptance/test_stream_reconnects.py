"""What a client is told that connects again, whatever it says to have seen."""

import json
import time
from statistics import median

import pytest

from tests.acceptance.apps.harness import Consumer
from tests.acceptance.apps.streams import events_of_orphan, told
from tests.servers.browser import Browser
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

PAGES = 200
LISTEN = """
  globalThis.told = new Array(%d).fill(0);
  globalThis.sources = told.map((_, number) => {
    const source = new EventSource(%s);
    source.addEventListener("complete", () => told[number]++);
    return source;
  });
  null
"""
NONSENSE = [
    b"",
    b"\xa0%d",
    b"-1",
    b"+%d",
    b"0%d",
    b"%d.0",
    b"%de0",
    b"%d %d",
    b"%d, %d",
    b'"%d"',
    b"1e9",
    b"999999999999999999999",
    b"9" * 7_000,
    b"\xb9",
    b"\xe9t\xe9",
    b"00000000-0000-4000-8000-000000000000",
    b"2999-01-01T00:00:00Z",
]


@pytest.mark.needs("chromium")
def test_browsers_that_never_close_stop_by_themselves_and_a_restart_multiplies_nothing(
    consumer: Consumer, browser: Browser
) -> None:
    logging = ["--access-logfile", "-", "--access-logformat", "answered %(s)s to %(U)s"]
    served = consumer.serve("--threads", "8", *logging)
    url = consumer.submit("quick").json()["eventsUrl"]
    consumer.wait_for_states(COMPLETED=1)
    with browser.open(str(consumer.http.base_url)) as page:
        page.evaluate(LISTEN % (PAGES, json.dumps(url)))
        wait_until(lambda: consumer.answers(url).count(200) == PAGES, 30, "every page to be told")
        served.kill()
        wait_until(lambda: page.evaluate("sources.every((each) => each.readyState !== 1)"), 10, "the restart")
        logged = consumer.answers(url)
        left = page.evaluate("sources.filter((each) => each.readyState !== 2).length")
        served.start()
        wait_until(lambda: page.evaluate("sources.every((each) => each.readyState === 2)"), 60, "the last attempt")
        assert page.evaluate("told") == [1] * PAGES
        wait_until(lambda: len(consumer.answers(url)) >= len(logged) + left, 10, "the last answer in the log")
    assert logged.count(200) == PAGES
    assert len(logged) - PAGES == logged.count(204) <= PAGES - left, "the quick ones came back before the restart"
    assert consumer.answers(url)[len(logged) :] == [204] * left


def test_one_who_has_seen_the_end_is_told_so_within_100_ms(served: Consumer) -> None:
    url = ended(served)
    id = last_id(served, url)
    seconds = []
    for _ in range(20):
        start = time.monotonic()
        answer = served.http.get(url, headers={"Last-Event-ID": id})
        seconds.append(time.monotonic() - start)
        assert (answer.status_code, answer.content) == (204, b"")
    assert median(seconds) < 0.1


@pytest.mark.parametrize("said", NONSENSE, ids=lambda said: repr(said[:24]))
def test_no_other_id_hides_the_end(served: Consumer, said: bytes) -> None:
    url = ended(served)
    id = last_id(served, url).encode()
    value = said.replace(b"%d", id)
    by_header = served.http.get(url, headers={b"Last-Event-ID": value})
    by_query = served.http.get(url, params={"lastEventId": value[:3_000]})
    for answer in (by_header, by_query):
        assert answer.status_code == 200
        assert [event.event for event in told(answer.text.splitlines())] == ["complete"]


@pytest.mark.parametrize("said", ["1", "2", "3", "99"])
def test_an_id_from_the_future_does_not_hide_an_end_that_comes_later(served: Consumer, said: str) -> None:
    url = events_of_orphan(served)
    with served.http.stream("GET", url, headers={"Last-Event-ID": said}) as answer:
        events = told(answer.iter_lines())
        assert next(events).event == "status"
        served.http.delete(url.removesuffix("/events"))
        assert [event.event for event in events] == ["cancelled"]


def ended(consumer: Consumer) -> str:
    """The URL of the stream of a job that has completed."""
    accepted = consumer.submit("quick")
    consumer.follow(accepted)
    url: str = accepted.json()["eventsUrl"]
    return url


def last_id(consumer: Consumer, url: str) -> str:
    [event] = told(consumer.http.get(url).text.splitlines())
    return event.id
