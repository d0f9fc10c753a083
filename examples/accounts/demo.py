"""Run the example on this machine.

    python -m examples.accounts.demo

`DATABASE_URL` names a PostgreSQL or SQLite database (default: a SQLite file in the instance folder), `PORT`
the port (default 5000; another one when it is taken), `ACCOUNTS` how many accounts an empty database gets.
"""

from __future__ import annotations

import errno
import os
import signal
import socket
from types import FrameType

from flask import Flask
from werkzeug.serving import BaseWSGIServer, make_server

from examples.accounts.app import create_app
from examples.accounts.data import fill
from examples.accounts.database import migrate
from examples.accounts.handlers import jobs
from examples.accounts.models import db

HOST = "127.0.0.1"
DEFAULT_PORT = 5000

TAKE_ID = r"""sed -n 's/.*"jobId": *"\([^"]*\)".*/\1/p'"""
BANNER = """
Swagger UI   {url}/docs/

Make sure that the accounts are evaluated; the same key again gives the same job:
  JOB=$(curl -s -X POST {url}/jobs/accounts -H 'Idempotency-Key: monday-1' | {take_id})
Ask how far it is:
  curl -i {url}/jobs/$JOB/status
Or be told each change, until it has ended:
  curl -N {url}/jobs/$JOB/events
Read the outcome, from the application's own table:
  curl -i '{url}/accounts?eligible=true&limit=3'
Begin once more, whatever was just done, and cancel that run:
  JOB=$(curl -s -X POST {url}/jobs/accounts -H 'Cache-Control: no-cache' | {take_id})
  curl -i -X DELETE {url}/jobs/$JOB
A job that fails; the answer is held until it has ended:
  curl -i -X POST {url}/jobs/accounts-audit -H 'Prefer: wait=20'
A job that another process does:
  curl -i -X POST {url}/jobs/statements

Ctrl-C ends it.
"""


def main() -> None:
    """Migrate, fill, serve until Ctrl-C or SIGTERM, then drain."""
    signal.signal(signal.SIGTERM, stop)
    app = create_app()
    try:
        prepare(app)
        serve(app, int(os.environ.get("PORT", DEFAULT_PORT)))
    except KeyboardInterrupt:
        return
    finally:
        leave(app)


def stop(_number: int, _frame: FrameType | None) -> None:
    """Treat SIGTERM as Ctrl-C."""
    raise KeyboardInterrupt


def prepare(app: Flask) -> None:
    """Bring the schema up to date, and fill the tables the first time."""
    migrate(app)
    with app.app_context():
        if fill(db.session, app.config["ACCOUNTS"]):
            print(f"Made {app.config['ACCOUNTS']} accounts.", flush=True)


def serve(app: Flask, port: int) -> None:
    """Start the jobs of this process and answer requests, each on a thread of its own, until Ctrl-C."""
    with listen(port) as listener, serving(app, listener) as server:
        jobs.start(app)
        print(BANNER.format(url=f"http://{HOST}:{server.port}", take_id=TAKE_ID), flush=True)
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


def leave(app: Flask) -> None:
    """Let running handlers end, then give the database its connections back."""
    print("Stopping.", flush=True)
    jobs.shutdown(app=app)
    with app.app_context():
        db.engine.dispose()


if __name__ == "__main__":
    main()
