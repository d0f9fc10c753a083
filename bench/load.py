"""A load of requests on kept connections, from a process of its own: `python -m bench.load METHOD URL SECONDS`."""

from __future__ import annotations

import sys
import threading
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

CONNECTIONS = 8


def requests_per_second(method: str, url: str, seconds: float) -> float:
    """Send requests on eight connections for `seconds` and return how many were answered per second."""
    target = urlsplit(url)
    end = time.perf_counter() + seconds
    counts: list[int] = []

    def send() -> None:
        connection = HTTPConnection(str(target.hostname), target.port)
        answered = 0
        while time.perf_counter() < end:
            connection.request(method, target.path)
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
    print(requests_per_second(sys.argv[1], sys.argv[2], float(sys.argv[3])))
