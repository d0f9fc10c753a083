"""`make bench`: submissions and status reads over HTTP, against bare routes with the same statement."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import httpx
from sqlalchemy import create_engine

from flask_async_jobs.models import Base
from tests.servers.app_server import AppServer
from tests.servers.postgres import PostgresServer

ROUNDS = 5
SECONDS = 2.0
GOAL = 0.8


def main() -> int:
    """Run everything and print rates and ratios; return 1 if a goal is missed."""
    with PostgresServer() as postgres, tempfile.TemporaryDirectory() as folder:
        url = postgres.create_database("bench")
        engine = create_engine(url)
        Base.metadata.create_all(engine)
        engine.dispose()
        application = Path(__file__).with_name("application.py")
        root = str(Path(__file__).parent.parent)
        environment = {"DATABASE_URL": url, "PYTHONPATH": root}
        workers = ("--worker-class", "gthread", "--workers", "1", "--threads", "8")
        with AppServer.gunicorn(application, *workers, log=Path(folder) / "log", env=environment) as server:
            return _measure(server.url)


def _measure(base: str) -> int:
    job = httpx.post(f"{base}/jobs/noop").json()
    row = httpx.post(f"{base}/floor/").json()
    pairs = {
        "submit": (("POST", f"{base}/jobs/noop"), ("POST", f"{base}/floor/")),
        "status": (("GET", job["statusUrl"]), ("GET", f"{base}/floor/{row['id']}")),
    }
    failed = 0
    print(f"{'':10}{'library/s':>12}{'floor/s':>12}{'ratio':>8}{'goal':>8}")
    for name, (ours, floor) in pairs.items():
        rates = [(_rate(*ours), _rate(*floor)) for _ in range(ROUNDS)]
        ratio = median(a / b for a, b in rates)
        library, bare = (median(each) for each in zip(*rates, strict=True))
        print(f"{name:10}{library:12.0f}{bare:12.0f}{ratio:8.2f}{GOAL:8.2f}")
        failed |= ratio < GOAL
    return int(failed)


def _rate(method: str, url: str) -> float:
    command = [sys.executable, "-m", "bench.load", method, url, str(SECONDS)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    raise SystemExit(main())
