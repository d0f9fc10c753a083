"""Everything works through PgBouncer in transaction mode, over two connections of the server.

The engine has the one option that the documentation asks for. What outlives a transaction, and would meet the next
client of the connection, would be in the server's log.
"""

import re
import shutil
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.orm import Session

from flask_async_jobs import AsyncJobs, CancelResult, JobStatus, TooManyActive
from flask_async_jobs.models import Base
from tests.integration.processes import running
from tests.integration.stores import MINUTE, back_date, edit, row
from tests.servers.postgres import PostgresServer
from tests.servers.postgres_binaries import server_account
from tests.servers.processes import free_port, start_process
from tests.waiting import wait_until

pytestmark = pytest.mark.needs("pgbouncer")

SERVER_CONNECTIONS = 2
CLIENTS = 16
SETTINGS = """
[databases]
* = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 200
"""
SESSION_STATE = re.compile(
    r"LOG:  (?:execute (?!<unnamed>)|(?:statement|execute [^:]*):\s+(?:"
    r"(?:SET\s+(?!LOCAL|TRANSACTION)|RESET|LISTEN|UNLISTEN|PREPARE|DEALLOCATE|DISCARD|LOAD)\b"
    r"|CREATE\s+(?:LOCAL\s+|GLOBAL\s+)?TEMP"
    r"|.*\bWITH HOLD\b"
    r"|.*\bpg_(?:try_)?advisory_(?:un)?lock(?:_shared|_all)?\("
    r"|.*\bset_config\(.*,\s*false\s*\)))",
    re.IGNORECASE,
)


class Pooler:
    """A PostgreSQL that logs every statement, and a PgBouncer before it."""

    def __init__(self, server: PostgresServer, port: int) -> None:
        self.server = server
        self.url = re.sub(r":\d+/", f":{port}/", server.url)
        self.direct = create_engine(server.url)

    def session_state(self) -> list[str]:
        """Return what the log shows of statements that outlive a transaction."""
        return [line for line in self.server.log.splitlines() if SESSION_STATE.search(line)]

    def connections(self) -> int:
        """Return how many connections to the server there are beside this one."""
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> pg_backend_pid()"
        with self.direct.connect() as connection:
            return connection.execute(text(others)).scalar_one()


@pytest.fixture(scope="module")
def pooler() -> Iterator[Pooler]:
    with PostgresServer(log_statement="all") as server, bouncer(server) as port:
        made = Pooler(server, port)
        Base.metadata.create_all(made.direct)
        with made.direct.begin() as connection:
            connection.execute(text("CREATE TABLE effects (name text)"))
        yield made
        made.direct.dispose()


@contextmanager
def bouncer(server: PostgresServer) -> Iterator[int]:
    """Run a PgBouncer before the server and give its port; it refuses to be root, like PostgreSQL."""
    home, port = Path(str(server.home)), free_port()
    settings = home / "pgbouncer.ini"
    address = re.search(r":(\d+)/", server.url)
    assert address is not None
    settings.write_text(SETTINGS.format(server=address[1], port=port, connections=SERVER_CONNECTIONS))
    settings.chmod(0o644)
    log, program = home / "pgbouncer.log", str(shutil.which("pgbouncer"))
    process = start_process([program, str(settings)], log, account=server_account(), cwd=home)
    try:
        wait_until(lambda: process.poll() is not None or listens(port), 10, lambda: log.read_text())
        assert process.poll() is None, log.read_text()
        yield port
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.fixture
def engine(pooler: Pooler) -> Iterator[Engine]:
    """The engine of an application behind the pooler, as the documentation makes it; at the end the log is read."""
    with pooler.direct.begin() as connection:
        connection.execute(text("TRUNCATE async_jobs, async_job_log, async_job_batches, effects"))
    engine = create_engine(pooler.url, pool_size=40, connect_args={"prepare_threshold": None})
    yield engine
    engine.dispose()
    assert pooler.session_state() == []


@pytest.fixture
def jobs(engine: Engine) -> Iterator[AsyncJobs]:
    """A process that runs jobs behind the pooler; `held` and `single` run until the test ends."""
    jobs, gate = AsyncJobs(), threading.Event()
    jobs.register("quick", lambda: None)
    jobs.register("steps", lambda ctx: [ctx.progress(percent) for percent in range(0, 100, 10)] and None)
    jobs.register("talks", lambda ctx: [ctx.log(f"line {number}") for number in range(3)] and None)
    jobs.register("held", lambda: gate.wait(30) and None, max_active=5)
    jobs.register("single", lambda: gate.wait(30) and None, coalesce=True)
    jobs.register("thrice", lambda: None, max_attempts=3)
    jobs.register("remote", lambda ctx: None, detached=True)
    with running(jobs, engine, PROCESSING_CONCURRENCY_LIMIT=8, BACKPRESSURE="queue") as app:
        jobs.app = app
        yield jobs
        gate.set()


def at_once(jobs: AsyncJobs, call, times: int) -> list:
    """Call from many threads, each in a context of the application."""

    def called(number: int):
        with jobs.app.app_context():
            return call(number)

    with ThreadPoolExecutor(CLIENTS) as clients:
        return list(clients.map(called, range(times)))


def states(pooler: Pooler) -> Counter:
    with pooler.direct.connect() as connection:
        return Counter(connection.execute(text("SELECT status FROM async_jobs")).scalars())


def becomes(jobs: AsyncJobs, job_id, status: JobStatus):
    """Wait until a job is in a state, and return it."""

    def reached():
        view = jobs.get(job_id)
        return view if view.status is status else None

    return wait_until(reached, 15, f"{status} of {job_id}")


def test_many_jobs_are_submitted_claimed_reported_and_completed_over_two_connections(jobs, pooler) -> None:
    at_once(jobs, lambda number: jobs.submit("steps" if number % 4 else "quick"), 200)
    assert pooler.connections() <= SERVER_CONNECTIONS
    wait_until(lambda: states(pooler) == {"COMPLETED": 200}, 30, lambda: str(states(pooler)))
    with pooler.direct.connect() as connection:
        assert connection.execute(text("SELECT DISTINCT attempt FROM async_jobs")).scalars().all() == [1]


def test_one_key_and_one_flight_stay_one_job_however_many_submit_at_once(jobs) -> None:
    keyed = at_once(jobs, lambda _: jobs.submit("quick", idempotency_key="one"), 40)
    flying = at_once(jobs, lambda _: jobs.submit("single"), 40)
    for submitted in (keyed, flying):
        assert len({each.job_id for each in submitted}) == 1
        assert Counter(each.disposition for each in submitted)["created"] == 1


def test_a_cap_is_exact_however_many_submit_at_once(jobs) -> None:
    def submitted(number: int) -> bool:
        try:
            return bool(jobs.submit("held"))
        except TooManyActive:
            return False

    assert sum(at_once(jobs, submitted, 40)) == 5


def test_a_running_job_is_cancelled_and_its_reports_are_refused(jobs) -> None:
    job_id = jobs.submit("remote").job_id
    becomes(jobs, job_id, JobStatus.PROCESSING)
    reporter = jobs.reporter(job_id)
    assert reporter.progress(50)
    assert jobs.cancel(job_id) is CancelResult.CANCELLED
    assert not reporter.progress(60)
    assert not reporter.complete()
    assert jobs.get(job_id).percent_complete == 50


def test_a_zombie_is_recovered_and_runs_again(jobs, pooler) -> None:
    job_id = jobs.submit("thrice", run_at=datetime.now(UTC) + timedelta(days=1)).job_id
    lapsed = datetime.now(UTC) - MINUTE
    edit(
        pooler.direct,
        job_id,
        status="PROCESSING",
        execution_token=job_id,
        attempt=1,
        started_at=lapsed,
        available_at=lapsed,
        lease_expires_at=lapsed,
    )
    back_date(pooler.direct, job_id, MINUTE, "created_at", "last_updated_at")
    assert jobs.recover() == 1
    assert jobs.wait(job_id, 15).attempt == 2


def test_a_job_in_the_caller_s_transaction_exists_if_that_commits(jobs, engine, pooler) -> None:
    def submitted(number: int):
        with Session(engine) as session:
            session.execute(text("INSERT INTO effects VALUES (:name)"), {"name": f"effect {number}"})
            job_id = jobs.submit("quick", session=session).job_id
            (session.commit if number % 2 else session.rollback)()
        return job_id

    job_ids = at_once(jobs, submitted, 40)
    wait_until(lambda: states(pooler) == {"COMPLETED": 20}, 15, lambda: str(states(pooler)))
    assert [jobs.get(job_id) is not None for job_id in job_ids] == [bool(number % 2) for number in range(40)]
    assert row(pooler.direct, job_ids[1]).status == "COMPLETED"
    with pooler.direct.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM effects")).scalar_one() == 20


def test_a_batch_is_one_for_its_key_and_its_items_run_and_log(jobs, engine, pooler) -> None:
    items = [{"itemId": str(number)} for number in range(50)]
    batches = at_once(jobs, lambda _: jobs.submit_batch("talks", items, idempotency_key="one"), 20)
    assert len({batch.batch_id for batch in batches}) == 1
    wait_until(lambda: states(pooler) == {"COMPLETED": 50}, 15, lambda: str(states(pooler)))
    client = jobs.app.test_client()
    assert client.get(f"/batches/{batches[0].batch_id}").json["completed"] == 50
    page = client.get(f"/batches/{batches[0].batch_id}/items").json
    assert [item["itemId"] for item in page["items"]] == [str(number) for number in range(25)]
    assert len(client.get(f"/jobs/{page['items'][0]['jobId']}/log").json["lines"]) == 3
    with Session(engine) as session:
        jobs.submit_batch("talks", items, session=session)
        session.rollback()
    assert states(pooler) == {"COMPLETED": 50}


def test_a_statement_of_a_session_would_be_seen_in_the_log() -> None:
    prefix = "2026-06-03 22:00:00 UTC [1] LOG:  "
    seen = ["statement: LISTEN x", "execute <unnamed>: SET search_path = a", "statement: CREATE TEMP TABLE t ()"]
    seen += ["execute <unnamed>: SELECT pg_advisory_lock($1)", "execute _pg3_0: SELECT 1"]
    unseen = ["execute <unnamed>: UPDATE t SET a = 1", "execute <unnamed>: SELECT pg_advisory_xact_lock($1)"]
    assert [line for line in seen + unseen if SESSION_STATE.search(prefix + line)] == seen
