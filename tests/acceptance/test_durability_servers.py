"""Workers forked from a process with connections, and workers of green threads."""

import json
import os
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import httpx
import psycopg
import pytest
from sqlalchemy import make_url

from tests.acceptance.apps.harness import CONSUMER, Consumer
from tests.servers.postgres_binaries import server_account
from tests.servers.processes import free_port, start_process
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

TLS = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = session
server_lifetime = 0
default_pool_size = 100
client_tls_sslmode = require
client_tls_key_file = {key}
client_tls_cert_file = {certificate}
"""
PRELOADED = CONSUMER.with_name("preloaded.py")


@pytest.mark.parametrize("threads", ["1", "4"])
def test_workers_that_were_forked_from_a_process_with_a_pool_share_no_connection(
    postgres_consumer: Consumer, threads: str
) -> None:
    check_that_workers_share_no_connection(postgres_consumer, threads)


@pytest.mark.needs("pgbouncer", "openssl")
def test_workers_that_were_forked_share_no_encrypted_connection(
    postgres_consumer: Consumer,
) -> None:
    with encrypting(postgres_consumer.store.url) as url:
        check_that_workers_share_no_connection(postgres_consumer, "4", DATABASE_URL=url)


@contextmanager
def encrypting(url: str) -> Iterator[str]:
    """Give a URL of the same database that takes encrypted connections alone: PgBouncer before it, one to one."""
    address, port, account = make_url(url), free_port(), server_account()
    with TemporaryDirectory(prefix="tls-", dir="/tmp") as folder:
        home = Path(folder)
        key, certificate = home / "key.pem", home / "certificate.pem"
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
        subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        settings = home / "pgbouncer.ini"
        settings.write_text(TLS.format(server=address.port, port=port, key=key, certificate=certificate))
        for path in (home, key, certificate, settings):
            path.chmod(0o755 if path is home else 0o600)
            if account.user:
                os.chown(path, *account)
        program = str(shutil.which("pgbouncer"))
        process = start_process([program, str(settings)], home / "log", account=account, cwd=home)
        try:
            encrypted = address.set(port=port, query={"sslmode": "require"}).render_as_string(hide_password=False)
            wait_until(lambda: is_encrypted(encrypted), 10, lambda: (home / "log").read_text())
            yield encrypted
        finally:
            process.kill()
            process.wait()


def is_encrypted(url: str) -> bool:
    """Whether the server takes a connection, and encrypts it."""
    with suppress(psycopg.OperationalError), psycopg.connect(url.replace("+psycopg", "")) as connection:
        return bool(connection.pgconn.ssl_in_use)
    return False


def check_that_workers_share_no_connection(consumer: Consumer, threads: str, **settings: str) -> None:
    """Send many requests of all kinds at once to four forked workers, and check what each of them saw."""
    count = 125
    served = consumer.serve("--preload", "--workers", "4", "--threads", threads, application=PRELOADED, **settings)
    processes = consumer.processes(4)
    backends: dict[int, set[int]] = defaultdict(set)
    forbidden: set[int] = set()

    def mixed(number: int) -> str:
        job_id = str(consumer.submit("ret", {"value": number}).json()["jobId"])
        assert consumer.http.get(f"/jobs/{job_id}/status").json()["jobId"] == job_id
        told = consumer.http.get(f"/echo/{number}").json()
        assert told["number"] == number
        backends[told["pid"]].add(told["backend"])
        forbidden.add(told["forbidden"])
        assert consumer.http.delete(f"/jobs/{job_id}").json()["jobId"] == job_id
        return job_id

    with ThreadPoolExecutor(8) as clients:
        ids = list(clients.map(mixed, range(count)))
    wait_until(lambda: consumer.store.states().keys() <= {"COMPLETED", "CANCELLED"}, 30, "the end of all jobs")
    rows = [consumer.store.job(each) for each in ids]
    for number, row in enumerate(rows):
        assert row.result is None if row.status == "CANCELLED" else json.loads(row.result) == number
    assert {run.pid for run in consumer.store.runs()} <= processes

    assert backends.keys() == processes
    used = [backend for each in backends.values() for backend in each]
    assert len(used) == len(set(used))
    assert forbidden.isdisjoint(used)
    assert len(forbidden) == 1
    alive = consumer.store.backends()
    assert all(each & alive for each in backends.values())
    assert "psycopg" not in served.log_text()
    assert consumer.new_trouble() == []


def test_a_locked_row_stops_no_other_request_and_no_other_job_under_gevent(
    postgres_consumer: Consumer, tmp_path: Path
) -> None:
    consumer, answers, gate = postgres_consumer, list[httpx.Response](), tmp_path / "gate"
    served = consumer.serve("-k", "gevent")
    reporting = {"n": 60, "every": 0.2, "file": str(gate)}
    ids = [consumer.submit("slow", reporting).json()["jobId"] for _ in range(8)]
    wait_until(lambda: min(percent_of(consumer, each) for each in ids) >= 0, 10, "the first reports")
    locked, *others = ids
    waiting = Thread(target=lambda: answers.append(consumer.http.delete(f"/jobs/{locked}")))
    slowest = 0.0
    with consumer.store.locked(locked):
        waiting.start()
        before = [percent_of(consumer, each) for each in others]
        unlocked, quick = time.monotonic() + 5, 0
        while (start := time.monotonic()) < unlocked:
            assert consumer.run("quick").json()["status"] == "COMPLETED"
            assert consumer.http.get(f"/jobs/{locked}/status").json()["status"] == "PROCESSING"
            quick += 1
            slowest = max(slowest, time.monotonic() - start)
        assert answers == []
        assert all(percent_of(consumer, each) > was for each, was in zip(others, before, strict=True))
    gate.touch()
    waiting.join(10)
    assert [answer.status_code for answer in answers] == [202]
    assert slowest < 2
    consumer.wait_for_states(COMPLETED=7 + quick, CANCELLED=1)
    assert quick > 5
    assert consumer.store.attempts() == {1}
    assert len(consumer.store.runs()) == 8 + quick
    assert "Using worker: gevent" in served.log_text()
    assert consumer.new_trouble() == []


def percent_of(consumer: Consumer, job_id: str) -> int:
    """How far a job is, and -1 before its first report."""
    percent = consumer.http.get(f"/jobs/{job_id}/status").json()["percentComplete"]
    return -1 if percent is None else int(percent)
