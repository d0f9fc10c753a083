"""Job stores with a long history, and everything that the library asks of one."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import Engine, create_engine, insert, text

from flask_async_jobs import JobRepository
from flask_async_jobs.log import JobLog
from flask_async_jobs.models import jobs_table
from flask_async_jobs.records import Cap, Claim, Report
from flask_async_jobs.states import JobError
from tests.integration.plans import Sent, sent
from tests.integration.stores import LEASE, MINUTE, RULES, new_job

CLAIMED, FOUND, PURGED = 32, 100, 1_000
SILENT = timedelta(minutes=15)
DAY = 86_400
TYPES = ("a", "thrice", "detached", "impatient")

_fill = text("""
    INSERT INTO async_jobs (id, type, status, owner, work_key, coalescing_key, idempotency_key, attempt,
        execution_token, lease_expires_at, available_at, created_at, started_at, last_updated_at, completed_at,
        percent_complete, error_title, error_code)
    SELECT gen_random_uuid(), type, status, owner,
        md5(type || owner || n % 500),
        CASE WHEN n % 2 = 0 THEN md5(status || n) END,
        CASE WHEN n % 3 = 0 THEN status || n END,
        CASE status WHEN 'PENDING' THEN 0 ELSE 1 END,
        CASE status WHEN 'PROCESSING' THEN gen_random_uuid() END,
        CASE status WHEN 'PROCESSING' THEN statement_timestamp() + interval '10 minutes' END,
        made, made, CASE WHEN status <> 'PENDING' THEN made END,
        made + took, CASE WHEN status IN ('COMPLETED', 'FAILED', 'CANCELLED') THEN made + took END,
        CASE status WHEN 'COMPLETED' THEN 100 END,
        CASE status WHEN 'FAILED' THEN 'Processing error' END,
        CASE status WHEN 'FAILED' THEN 'processing-error' END
    FROM (
        SELECT n,
            (ARRAY['a', 'thrice', 'detached', 'impatient'])[1 + n % 4] AS type,
            'owner-' || n % 200 AS owner,
            coalesce(
                CAST(:status AS text), (ARRAY['FAILED', 'FAILED', 'CANCELLED'])[1 + n % 20], 'COMPLETED'
            ) AS status,
            statement_timestamp() - make_interval(secs => :age * (1 - n / CAST(:rows AS float))) AS made,
            make_interval(secs => CASE WHEN CAST(:status AS text) IS NULL THEN n % 600 ELSE 0 END) AS took
        FROM generate_series(1, CAST(:rows AS int)) AS n
    ) AS job
""")


def fill(engine: Engine, rows: int, status: str | None = None, age: float = 30 * DAY) -> None:
    """Write jobs in a moment, on PostgreSQL: of one state, or ended ones (17 in 20 COMPLETED).

    They are of four types, 200 owners and 1,000 works, and spread evenly over the last `age` seconds.
    """
    with engine.begin() as connection:
        connection.execute(_fill, {"rows": rows, "status": status, "age": age})


def fill_anywhere(engine: Engine, rows: int, status: str) -> None:
    """Write jobs of one state, one by one."""
    ended, running = status == "COMPLETED", status == "PROCESSING"
    made = [datetime.now(UTC) - timedelta(minutes=rows - n) for n in range(rows)]
    columns = [
        {
            "id": uuid4(),
            "type": TYPES[n % 4],
            "status": status,
            "work_key": f"work {n % 50}",
            "coalescing_key": f"{status} {n}",
            "idempotency_key": f"{status} {n}",
            "execution_token": uuid4() if running else None,
            "available_at": moment,
            "created_at": moment,
            "started_at": moment,
            "last_updated_at": moment,
            "completed_at": moment if ended else None,
        }
        for n, moment in enumerate(made)
    ]
    with engine.begin() as connection:
        connection.execute(insert(jobs_table()), columns)


def without_autovacuum(url: str) -> Engine:
    """Return an engine for a database whose statistics change only when a test says so."""
    engine = create_engine(url)
    console(engine, "ALTER TABLE async_jobs SET (autovacuum_enabled = false)")
    return engine


def console(engine: Engine, statement: str) -> list[Any]:
    """Execute a statement outside of any transaction, `VACUUM` for example, and return its rows."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        result = connection.exec_driver_sql(statement)
        return list(result) if result.returns_rows else []


Operation = Callable[[JobRepository, list[Claim]], object]

OPERATIONS: dict[str, Operation] = {
    "insert": lambda store, _: store.insert(new_job(idempotency_key="new", coalescing_key="new")),
    "capped insert": lambda store, _: store.insert(
        new_job(owner="owner-1"), [Cap("total", 10_000), Cap("type", 10_000), Cap("owner", 10_000)]
    ),
    "find by key": lambda store, _: store.find_by_key("owner-1", "COMPLETED1"),
    "find in flight": lambda store, _: store.find_in_flight("none"),
    "find fresh": lambda store, _: store.find_fresh("none", timedelta(minutes=30)),
    "last completed": lambda store, _: store.last_completed_at("none"),
    "find": lambda store, claims: store.find(claims[0].job_id),
    "find the owner's": lambda store, claims: store.find(claims[0].job_id, "owner-1"),
    "find all": lambda store, claims: store.find_all([claim.job_id for claim in claims]),
    "result": lambda store, claims: store.result_of(claims[0].job_id),
    "claim": lambda store, _: store.claim(RULES, CLAIMED, LEASE),
    "give back": lambda store, _: store.give_back([uuid4()]),
    "is running": lambda store, claims: store.is_running(claims[0].job_id, claims[0].execution_token),
    "renew": lambda store, claims: store.renew(claims, LEASE),
    "progress": lambda store, claims: store.progress(claims[0].job_id, claims[0].execution_token, 3, LEASE),
    "report": lambda store, claims: JobLog(store, 100).write(
        claims[0].job_id, claims[0].execution_token, lambda: Report(3, ["line"]), LEASE
    ),
    "log": lambda store, claims: JobLog(store, 100).entries(claims[0].job_id, 3, 10),
    "effect": lambda store, claims: store.mark_effect_started(claims[0].job_id, claims[0].execution_token),
    "retry": lambda store, claims: store.retry(claims[0].job_id, claims[0].execution_token, MINUTE),
    "complete": lambda store, claims: store.complete(claims[0].job_id, claims[0].execution_token),
    "complete without a token": lambda store, claims: store.complete(claims[0].job_id, None),
    "complete together": lambda store, claims: store.complete_all(claims),
    "fail": lambda store, claims: store.fail(claims[0].job_id, claims[0].execution_token, JobError.of("t")),
    "cancel": lambda store, claims: store.cancel(claims[0].job_id),
    "sweep": lambda store, claims: store.stranded(RULES, FOUND, SILENT, MINUTE, _tokens(claims)),
    "recover": lambda store, claims: store.recover([c.job_id for c in claims], RULES, SILENT, _tokens(claims)),
    "purge": lambda store, _: store.purge(RULES, timedelta(hours=1), PURGED),
}


def _tokens(claims: list[Claim]) -> list[Any]:
    return [claim.execution_token for claim in claims]


class Store:
    """A job store with a history and a queue; `claims` are jobs that this process runs."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.repository = JobRepository(engine)
        self.claims: list[Claim] = []

    def sent(self, operation: str) -> Sent:
        """Return the statement of an operation."""
        return sent(self.engine, lambda: OPERATIONS[operation](self.repository, self.claims))
