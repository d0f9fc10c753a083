"""What every demo does: listen, run jobs and answer requests in one process, and drain at the end."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType

from flask import Flask
from werkzeug.serving import BaseWSGIServer, make_server

from flask_async_jobs import AsyncJobs

HOST = "127.0.0.1"
DEFAULT_PORT = 5000


def run(app: Flask, jobs: AsyncJobs, *, prepare: Callable[[Flask], None], banner: Callable[[str], str]) -> None:
    """Prepare, serve until Ctrl-C or SIGTERM, then let running handlers end.

    Args:
        app: What to serve.
        jobs: Its jobs.
        prepare: What brings its database up to date.
        banner: The text to print once the server listens, for its address.
    """
    signal.signal(signal.SIGTERM, stop)
    try:
        prepare(app)
        serve(app, jobs, int(os.environ.get("PORT", DEFAULT_PORT)), banner)
    except KeyboardInterrupt:
        return
    finally:
        print("Stopping.", flush=True)
        jobs.shutdown(app=app)


def stop(_number: int, _frame: FrameType | None) -> None:
    """Treat SIGTERM as Ctrl-C."""
    raise KeyboardInterrupt


def serve(app: Flask, jobs: AsyncJobs, port: int, banner: Callable[[str], str]) -> None:
    """Start the jobs of this process and answer requests, each on a thread of its own, until Ctrl-C."""
    with listen(port) as listener, serving(app, listener) as server:
        jobs.start(app)
        print(banner(f"http://{HOST}:{server.port}"), flush=True)
        server.serve_forever()


def listen(port: int) -> socket.socket:
    """Return a listening socket on `port`, or on a free port when another program has that one."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return socket.create_server((HOST, 0))


def serving(app: Flask, listener: socket.socket) -> BaseWSGIServer:
    """Return Werkzeug's server with a thread for every request, without the reloader."""
    return make_server(HOST, listener.getsockname()[1], app, threaded=True, fd=listener.fileno())
