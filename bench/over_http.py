"""Submissions and status reads over HTTP, against bare flask-smorest routes with the same statement."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import httpx
from sqlalchemy import create_engine

from bench.report import Figure
from flask_async_jobs.models import Base
from tests.servers.app_server import AppServer
from tests.servers.postgres import PostgresServer

ROUNDS = 5
SECONDS = 2.0
GOAL = 0.8
WORKERS = ("--worker-class", "gthread", "--workers", "1", "--threads", "8")


def figures(postgres: PostgresServer) -> Iterator[Figure]:
    """Measure in alternating rounds, and give the median of the rounds' ratios."""
    url = postgres.create_database("over_http")
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    engine.dispose()
    application = Path(__file__).with_name("application.py")
    environment = {"DATABASE_URL": url, "PYTHONPATH": str(application.parent.parent)}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with AppServer.gunicorn(application, *WORKERS, log=log, env=environment) as server:
            yield from _compared(server.url)


def _compared(base: str) -> Iterator[Figure]:
    job = httpx.post(f"{base}/jobs/noop").json()
    row = httpx.post(f"{base}/floor/").json()
    pairs = {
        "submit": (("POST", f"{base}/jobs/noop"), ("POST", f"{base}/floor/")),
        "status": (("GET", job["statusUrl"]), ("GET", f"{base}/floor/{row['id']}")),
    }
    for name, (ours, floor) in pairs.items():
        rates = [(_rate(*ours), _rate(*floor)) for _ in range(ROUNDS)]
        library, bare = (median(each) for each in zip(*rates, strict=True))
        ratio = median(a / b for a, b in rates)
        yield Figure(f"{name}: of a bare route", ratio, least=GOAL, note=f"{library:,.0f}/s of {bare:,.0f}/s")


def _rate(method: str, url: str) -> float:
    command = [sys.executable, "-m", "bench.load", method, url, str(SECONDS)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
