"""A network that can stop between a client and the database."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, QueuePool, create_engine, make_url

from tests.waiting import wait_until


class Proxy:
    """Passes bytes between a client and the database, until it is told to pass none. What comes meanwhile waits."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._asking, self._answering = threading.Event(), threading.Event()
        self.thaw()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        """Pass nothing."""
        self._asking.clear()
        self._answering.clear()

    def freeze_answers(self) -> None:
        """Pass what clients say, and nothing of what the database says."""
        self._answering.clear()

    def thaw(self) -> None:
        """Pass everything, that which waits first."""
        self._asking.set()
        self._answering.set()

    def close(self) -> None:
        """Take no connection any more."""
        self.thaw()
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._asking.wait()
            server = socket.create_connection(("127.0.0.1", self._target))
            for source, sink, passing in ((client, server, self._asking), (server, client, self._answering)):
                threading.Thread(target=_pass_on, args=(source, sink, passing), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket, passing: threading.Event) -> None:
    with source, sink:
        try:
            while data := source.recv(65_536):
                passing.wait()
                sink.sendall(data)
        except OSError:
            return


@contextmanager
def proxied(url: str, **options: Any) -> Iterator[tuple[Proxy, Engine]]:
    """Give a proxy before the database at `url`, and an engine that connects through it.

    At the end what was on its way arrives, so that whoever waits for it gives its connection back.
    """
    address = make_url(url)
    assert address.port
    proxy = Proxy(address.port)
    engine = create_engine(address.set(port=proxy.port), **options)
    pool = engine.pool
    assert isinstance(pool, QueuePool)
    try:
        yield proxy, engine
    finally:
        proxy.close()
        wait_until(lambda: pool.checkedout() == 0, message="every connection to be given back")
        engine.dispose()
