"""A trigger that notes every change of a job, whoever makes it: what happened, apart from how the row looks now."""

from sqlalchemy import Engine, text

TERMINAL = ("COMPLETED", "FAILED", "CANCELLED")
COLUMNS = ["status", "attempt", "revision", "last_updated_at"]

_pairs = ", ".join(f"{side}_{column}" for column in COLUMNS for side in ("old", "new"))
_values = ", ".join(f"{side}.{column}" for column in COLUMNS for side in ("old", "new"))
_insert = f"INSERT INTO job_audit (job_id, {_pairs}) VALUES (CAST(new.id AS text), {_values})"
_table = """
CREATE TABLE job_audit (
    number {identity}, job_id text NOT NULL,
    old_status text NOT NULL, new_status text NOT NULL, old_attempt integer NOT NULL, new_attempt integer NOT NULL,
    old_revision integer NOT NULL, new_revision integer NOT NULL,
    old_last_updated_at {instant} NOT NULL, new_last_updated_at {instant} NOT NULL
)"""
SQLITE = [
    _table.format(identity="integer PRIMARY KEY", instant="text"),
    f"CREATE TRIGGER job_audit AFTER UPDATE ON async_jobs BEGIN {_insert}; END",
]
POSTGRESQL = [
    _table.format(identity="integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY", instant="timestamptz"),
    f"CREATE FUNCTION job_audit() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {_insert}; RETURN NULL; END$$",
    "CREATE TRIGGER job_audit AFTER UPDATE ON async_jobs FOR EACH ROW EXECUTE FUNCTION job_audit()",
]


def install(engine: Engine) -> None:
    """Note every update of a job from now on."""
    with engine.begin() as connection:
        for statement in SQLITE if engine.dialect.name == "sqlite" else POSTGRESQL:
            connection.execute(text(statement))


def changes(engine: Engine, after: int = 0, job_id=None):
    """Return the changes with a number above `after`, in order; of one job, or of all."""
    query = "SELECT * FROM job_audit WHERE number > :after AND (:job = '' OR job_id = :job) ORDER BY number"
    with engine.connect() as connection:
        return connection.execute(text(query), {"after": after, "job": str(job_id or "")}).all()


def assert_lawful(change, *, uncounted: bool = False) -> None:
    """Check what holds for every change: it may be a renewal, which moves neither the revision nor the instant."""
    assert change.old_status not in TERMINAL, f"a terminal state was left: {change}"
    assert change.new_last_updated_at >= change.old_last_updated_at, f"time went back: {change}"
    assert change.new_attempt >= change.old_attempt - uncounted, f"an attempt was forgotten: {change}"
    written = change.new_revision - change.old_revision
    assert written in (0, 1), f"the revision jumped: {change}"
    if not written:
        assert change.new_status == change.old_status, f"a transition without a revision: {change}"
        assert change.new_last_updated_at == change.old_last_updated_at


def assert_possible(row) -> None:
    """Check the constraints of the table, without asking it."""
    assert (row.status in TERMINAL) == (row.completed_at is not None)
    assert (row.status == "FAILED") == (row.error_title is not None)
    assert (row.status == "PROCESSING") == (row.execution_token is not None)
    assert row.percent_complete is None or 0 <= row.percent_complete <= 100
    assert row.attempt >= 0
    assert row.revision >= 1
    assert row.batch_id is row.item_id is row.item_position is None
