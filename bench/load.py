"""A load of requests on kept connections, from a process of its own.

`python -m bench.load METHOD URL SECONDS [ITEMS]`: without ITEMS the requests have no body; with 1 each has the
payload of one job, with more those of a batch; each of those has a key of its own.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

CONNECTIONS = 8
LISTING = {
    "title": "Wireless keyboard",
    "description": "Used wireless keyboard. Includes its USB receiver. All keys work.",
    "category": "Computer accessories",
    "price": 45.00,
    "attributes": {"brand": "KeyPro", "condition": "used"},
}


def items_of(size: int) -> list[dict[str, Any]]:
    """Return the items of a batch."""
    return [{"itemId": f"item-{n}", "payload": LISTING} for n in range(size)]


def requests_per_second(method: str, url: str, seconds: float, size: int = 0) -> float:
    """Send requests on eight connections for `seconds` and return how many were answered per second."""
    target = urlsplit(url)
    body = json.dumps({"items": items_of(size)} if size > 1 else LISTING) if size else None
    end = time.perf_counter() + seconds
    counts: list[int] = []

    def send() -> None:
        connection = HTTPConnection(str(target.hostname), target.port)
        answered = 0
        while time.perf_counter() < end:
            headers = {"Content-Type": "application/json", "Idempotency-Key": str(uuid4())} if body else {}
            connection.request(method, target.path, body, headers)
            response = connection.getresponse()
            response.read()
            if response.status >= 300:
                raise SystemExit(f"{method} {url} answered {response.status}")
            answered += 1
        connection.close()
        counts.append(answered)

    threads = [threading.Thread(target=send) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(counts) < CONNECTIONS:
        raise SystemExit("a connection failed")
    return sum(counts) / seconds


if __name__ == "__main__":
    print(requests_per_second(sys.argv[1], sys.argv[2], float(sys.argv[3]), int([*sys.argv, "0"][4])))
