"""A client of batches that needs nothing but the standard library; it could stand on another machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from email.message import Message
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

TIMEOUT = 30
TRIES = 8
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 5.0
GROWTH = 1.5
PAGE = 100
TRY_AGAIN = (429, 503)


class Refused(Exception):
    """The server does not take the request, and would not take it later; has the problem that it told."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = problem
        words = [problem.get("title") or status, problem.get("detail"), problem.get("errors")]
        super().__init__(": ".join(str(word) for word in words if word))


class Answer(NamedTuple):
    """What the server said."""

    status: int
    headers: Message
    body: Any


class Client:
    """Submits batches to one server and follows them."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def submit(self, type: str, key: str, payloads: Mapping[str, str]) -> Answer:
        """Submit a batch of one item for each entry: its id and the JSON text of its payload, sent as it stands.

        Sent again with the same key it is the same batch; the answer is 200 when that had ended before, else 202.
        """
        items = (f'{{"itemId": {json.dumps(name)}, "payload": {text}}}' for name, text in payloads.items())
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        return ask(f"{self.url}/batches/{type}", f'{{"items": [{", ".join(items)}]}}'.encode(), headers)

    def wait(self, status_url: str) -> dict[str, Any]:
        """Poll until the batch has ended, less and less often, and return its summary."""
        pause = FIRST_PAUSE
        while (answer := ask(status_url)).body["status"] != "COMPLETED":
            time.sleep(max(pause, retry_after(answer.headers)))
            pause = min(pause * GROWTH, LONGEST_PAUSE)
        summary: dict[str, Any] = answer.body
        return summary

    def items(self, items_url: str) -> Iterator[dict[str, Any]]:
        """Yield the items of a batch, in the order in which they were submitted, a page in a request."""
        after: int | None = 0
        while after is not None:
            page = ask(f"{items_url}?{urlencode({'after': after, 'limit': PAGE})}").body
            yield from page["items"]
            after = page["nextAfter"]


def ask(url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
    """Ask until there is an answer: again when there is none, or one that says later, up to eight times.

    A submission can be repeated like a question, because its key makes it the same submission.

    Raises:
        Refused: Any other error.
        URLError, HTTPException, OSError: There was no answer at all, at the last try either.
    """
    request = Request(url, body, dict(headers or {}))
    for left in reversed(range(TRIES)):
        try:
            with urlopen(request, timeout=TIMEOUT) as response:
                return Answer(response.status, response.headers, json.load(response))
        except HTTPError as error:
            with error:
                if error.code not in TRY_AGAIN or not left:
                    raise Refused(error.code, problem_of(error)) from error
                time.sleep(max(FIRST_PAUSE, retry_after(error.headers)))
        except (URLError, HTTPException, OSError):
            if not left:
                raise
            time.sleep(FIRST_PAUSE)
    raise AssertionError("the last try returns or raises")


def retry_after(headers: Message) -> float:
    """Return the seconds that the server asks to wait, 0 where it does not; it sends no dates."""
    text = headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0


def problem_of(error: HTTPError) -> dict[str, Any]:
    """Return the problem document of an error, or an empty one where something else answered."""
    try:
        problem = json.load(error)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}
