"""Batches of 100 against as many single submissions, and one request with 10,000 items."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import httpx
from sqlalchemy import create_engine

from bench.load import items_of
from bench.report import Figure
from flask_async_jobs.models import Base
from tests.servers.app_server import AppServer
from tests.servers.postgres import PostgresServer

ROUNDS = 3
SECONDS = 3.0
SIZE = 100
LARGE = 10_000
ASKED = 30
WORKERS = ("--worker-class", "gthread", "--workers", "1", "--threads", "8")


def figures(postgres: PostgresServer) -> Iterator[Figure]:
    """Measure on one server process, submissions and batches in alternating rounds."""
    url = postgres.create_database("batches")
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    engine.dispose()
    with _server(url) as server:
        rounds = [
            (SIZE * _rate(f"{server.url}/batches", SIZE), _rate(f"{server.url}/jobs", 1)) for _ in range(ROUNDS)
        ]
        batches, single = (median(each) for each in zip(*rounds, strict=True))
        note = f"{batches:,.0f} items/s of {single:,.0f}/s"
        yield Figure("batches of 100: of single ones", median(a / b for a, b in rounds), least=10, note=note)
    with _server(url) as server:
        yield from _large(server)


@contextmanager
def _server(url: str) -> Iterator[AppServer]:
    application = Path(__file__).with_name("application.py")
    environment = {
        "DATABASE_URL": url,
        "PYTHONPATH": os.pathsep.join([str(application.parent.parent), os.environ.get("PYTHONPATH", "")]),
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        AppServer.gunicorn(application, *WORKERS, log=Path(folder) / "log", env=environment) as server,
    ):
        yield server


def _rate(prefix: str, size: int) -> float:
    """Return how many submissions of `size` items are answered per second."""
    command = [sys.executable, "-m", "bench.load", "POST", f"{prefix}/review", str(SECONDS), str(size)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _large(server: AppServer) -> Iterator[Figure]:
    """Submit 10,000 items in one request to a process that has had a small one, see how it grows, then read it."""
    _submit(server, SIZE)
    (worker,) = _children(server.pid)
    before = _memory(worker, "VmRSS")
    begun = time.perf_counter()
    sent, url = _submit(server, LARGE)
    took = time.perf_counter() - begun
    growth = _memory(worker, "VmHWM") - before
    note = f"{took:.2f} s, a body of {sent / 2**20:.1f} MiB"
    yield Figure("10,000 items in one: MiB grown", growth / 1_024, most=64, note=note)
    with httpx.Client() as client:
        for name, path in (("summary", ""), ("page of 100", "/items?after=5000&limit=100")):
            yield Figure(f"10,000 items: {name}, ms", median(_took(client, url + path) for _ in range(ASKED)))


def _took(client: httpx.Client, url: str) -> float:
    begun = time.perf_counter()
    client.get(url).raise_for_status()
    return (time.perf_counter() - begun) * 1_000


def _submit(server: AppServer, size: int) -> tuple[int, str]:
    body = json.dumps({"items": items_of(size)})
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"large-{size}"}
    response = httpx.post(f"{server.url}/batches/review", content=body, headers=headers, timeout=60)
    assert response.status_code == 202, response.text
    return len(body), response.json()["statusUrl"]


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _memory(pid: int, name: str) -> int:
    """Return a line of a process's status in KiB: what it has now, or the most that it had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))
