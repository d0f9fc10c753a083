"""Reading event streams as they arrive, and leaving them politely or not."""

import json
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.acceptance.apps.harness import Consumer

RESET = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which a close is a reset."""


class Told(NamedTuple):
    """An event as it was told, and the instant at which its last line arrived (seconds since 1970)."""

    event: str
    id: str
    data: Any
    at: float

    @property
    def delay(self) -> float:
        """The seconds from the change, as it was persisted, to the arrival."""
        return self.at - datetime.fromisoformat(self.data["lastUpdatedAt"]).timestamp()


def told(lines: Iterable[str]) -> Iterator[Told]:
    """Give each event when the blank line after it has arrived; comments and `retry` are left out."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.rstrip("\r\n").partition(": ")
        if name in ("event", "id", "data"):
            fields[name] = value
        elif not name and fields:
            yield Told(fields["event"], fields["id"], json.loads(fields["data"]), time.time())
            fields = {}


def events_of_orphan(consumer: Consumer) -> str:
    """The URL of the stream of a job that stays PENDING: nobody knows its type."""
    return str(consumer.http.base_url.join(f"/jobs/{consumer.store.add_orphan('unheard-of')}/events"))


def connected(url: str) -> socket.socket:
    """Ask for `url` on a connection of its own, and return it without reading."""
    address = urlsplit(url)
    assert address.hostname
    connection = socket.create_connection((address.hostname, address.port or 80), timeout=10)
    headers = f"Host: {address.netloc}\r\nAccept: text/event-stream\r\nConnection: close"
    connection.sendall(f"GET {address.path} HTTP/1.1\r\n{headers}\r\n\r\n".encode())
    return connection


def opened(url: str) -> socket.socket:
    """Ask for a stream and return when its snapshot has arrived."""
    connection, received = connected(url), b""
    while b"\ndata: " not in received:
        more = connection.recv(4096)
        assert more, received
        received += more
    assert received.startswith(b"HTTP/1.1 200"), received
    return connection


def read_to_the_end(connection: socket.socket) -> None:
    """Read until the server closes, and close too: gunicorn waits for that."""
    with connection:
        while connection.recv(4096):
            pass


def reset(connection: socket.socket) -> None:
    """Leave without a word: the other side is sent a RST, not a FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()
