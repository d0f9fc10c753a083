"""The script client of the listing review: when it asks again, how long it waits, and what it gives up on."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest

from examples.listing_review import client
from examples.listing_review.client import Client, Refused, ask

DONE = {"status": "COMPLETED"}
BUSY = {"status": "PROCESSING"}


class Scripted(HTTPServer):
    """Gives one prepared answer after the other: a status, a `Retry-After`, a body; None drops the request."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.asked: list[tuple[str, str | None, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Scripted

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.path, self.headers.get("Idempotency-Key"), body))
        answer = self.server.answers.pop(0)
        if answer is None:
            return
        status, retry_after, content = answer
        self.send_response(status)
        if retry_after is not None:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as made:
        thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client would have waited, each time."""
    pauses: list[float] = []
    monkeypatch.setattr(client.time, "sleep", pauses.append)
    return pauses


def test_a_submission_is_repeated_with_its_key_until_it_is_answered(server: Scripted, slept: list[float]) -> None:
    server.answers = [(503, "7", {}), None, (429, "0", {}), (202, None, {"batchId": "b"})]
    answer = Client(server.url).submit("review", "k", {"a": '{"price": 45.00}', 'b"': "{}"})
    assert (answer.status, answer.body, slept) == (202, {"batchId": "b"}, [7, 1, 1])
    sent = b'{"items": [{"itemId": "a", "payload": {"price": 45.00}}, {"itemId": "b\\"", "payload": {}}]}'
    assert server.asked == [("/batches/review", "k", sent)] * 4


def test_polling_becomes_slower_and_is_never_sooner_than_the_server_says(
    server: Scripted, slept: list[float]
) -> None:
    server.answers = [(200, "1", BUSY)] * 4 + [(200, "9", BUSY), (200, None, BUSY), (200, None, DONE)]
    assert Client(server.url).wait(f"{server.url}/batches/b") == DONE
    assert slept == [1, 1.5, 2.25, 3.375, 9, 5]


def test_every_page_is_read(server: Scripted) -> None:
    server.answers = [
        (200, None, {"items": [{"itemId": "a"}, {"itemId": "b"}], "nextAfter": 2}),
        (200, None, {"items": [{"itemId": "c"}], "nextAfter": None}),
    ]
    assert [item["itemId"] for item in Client(server.url).items(f"{server.url}/items")] == ["a", "b", "c"]
    assert [path for path, _, _ in server.asked] == ["/items?after=0&limit=100", "/items?after=2&limit=100"]


def test_what_will_not_be_taken_later_is_not_tried_again(server: Scripted, slept: list[float]) -> None:
    problem = {"title": "Invalid payload", "detail": "no", "errors": {"items": ["x"]}}
    server.answers = [(422, None, problem)]
    with pytest.raises(Refused, match=r"^Invalid payload: no: \{'items': \['x'\]\}$"):
        ask(server.url)
    server.answers = [(500, None, ["a page of a proxy"])]
    with pytest.raises(Refused, match=r"^500$"):
        ask(server.url)
    assert slept == []


def test_it_is_given_up_after_eight_tries(server: Scripted, slept: list[float]) -> None:
    server.answers = [(503, "2", {"title": "Storage unavailable"})] * 8
    with pytest.raises(Refused, match=r"^Storage unavailable$"):
        ask(server.url)
    server.answers = [None] * 8
    with pytest.raises(OSError, match="closed connection"):
        ask(server.url)
    assert slept == [2.0] * 7 + [1.0] * 7
