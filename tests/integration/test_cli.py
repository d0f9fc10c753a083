"""`flask async-jobs`: what each command prints and how it exits, on both databases."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import Result
from sqlalchemy import Engine, NullPool, create_engine, inspect

from flask_async_jobs.migrations import VERSION_TABLE
from tests.integration.apps import START, UNKNOWN_ID, Clock, Site, TestJobs, serving


@pytest.fixture
def site(engine: Engine) -> Iterator[Site]:
    """Accepts jobs and runs none."""
    with serving(TestJobs(), engine, SSE_POLL_INTERVAL=0.02) as site:
        yield site


@pytest.fixture
def busy(engine: Engine) -> Iterator[Site]:
    """Beside the command a process runs jobs."""
    with serving(TestJobs(), engine, run=True, SSE_POLL_INTERVAL=0.02) as site:
        yield site


@pytest.fixture
def empty(empty_database_url: str) -> Iterator[Site]:
    """The database has no tables."""
    engine = create_engine(empty_database_url)
    with serving(TestJobs(), engine) as site:
        yield site
    engine.dispose()


def call(site: Site, *args: str) -> Result:
    """Run a command; whatever happens, it ends with an exit code and shows no traceback."""
    result = site.app.test_cli_runner().invoke(args=["async-jobs", *args])
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    assert "Traceback" not in result.output
    return result


def printed(site: Site, *args: str) -> Any:
    result = call(site, *args, "--json")
    return json.loads(result.stdout)


def table_names(url: str) -> set[str]:
    engine = create_engine(url, poolclass=NullPool)
    return set(inspect(engine).get_table_names())


# Jobs


def test_types_lists_the_registered_types(site: Site) -> None:
    types = ["blank", "boom", "keyed", "listing", "other", "quick", "refused", "remote", "single"]
    assert printed(site, "types") == types
    lines = call(site, "types").stdout.splitlines()
    assert [line.split()[0] for line in lines] == types
    assert [line.split()[0] for line in lines if "detached" in line] == ["remote", "single"]


def test_submit_stores_a_job_and_prints_it(site: Site) -> None:
    result = call(site, "submit", "quick")
    assert result.exit_code == 0
    job_id = result.stdout.split()[0]
    assert site.status(job_id).json["status"] == "PENDING"
    assert "PENDING" in result.stdout


def test_submit_takes_what_a_request_takes(site: Site) -> None:
    options = ("listing", "--payload", '{"value": 1.0}', "--idempotency-key", "k", "--owner", "ann")
    first = printed(site, "submit", *options)
    assert first.keys() >= {"jobId", "jobType", "status", "createdAt", "attempt", "disposition"}
    assert (first["jobType"], first["status"], first["disposition"]) == ("listing", "PENDING", "created")
    again = printed(site, "submit", *options)
    assert (again["jobId"], again["disposition"]) == (first["jobId"], "replayed")


@pytest.mark.parametrize(
    "args",
    [
        (), ("nothing",), ("a b",), ("quick", "--payload", "{"), ("quick", "--payload", '{"a": 1}'),
        ("listing", "--payload", "{}"), ("listing", "--payload", '{"value": "\\u0000"}'), ("keyed",),
        ("quick", "--idempotency-key", "a b"), ("quick", "--owner", "a\0b"),
        ("quick", "--wait", "-1"), ("quick", "--wait", "soon"), ("quick", "--nonsense"),
    ],
)  # fmt: skip
def test_submit_refuses_what_makes_no_sense(sqlite_url: str, args: tuple[str, ...]) -> None:
    engine = create_engine(sqlite_url)
    with serving(TestJobs(), engine) as site:
        result = call(site, "submit", *args)
        assert result.exit_code == 2
        assert result.stderr.strip()
        assert site.count(engine) == 0
    engine.dispose()


def test_a_key_of_other_work_is_refused(site: Site) -> None:
    call(site, "submit", "quick", "--idempotency-key", "k")
    result = call(site, "submit", "other", "--idempotency-key", "k")
    assert result.exit_code == 2
    assert "key" in result.stderr


def test_wait_exits_by_how_the_job_ended(busy: Site) -> None:
    for type, code, status in (("quick", 0, "COMPLETED"), ("refused", 1, "FAILED"), ("boom", 1, "FAILED")):
        result = call(busy, "submit", type, "--wait", "--json")
        assert (result.exit_code, json.loads(result.stdout)["status"]) == (code, status)
    assert json.loads(result.stdout)["error"]["code"] == "processing-error"
    assert "secret" not in result.output
    assert call(busy, "submit", "quick", "--wait", "30").exit_code == 0


def test_wait_exits_otherwise_for_a_job_that_was_cancelled(site: Site) -> None:
    job_id = site.submit("quick", key="k")
    assert call(site, "cancel", job_id).exit_code == 0
    assert call(site, "submit", "quick", "--idempotency-key", "k", "--wait").exit_code == 1


def test_wait_runs_nothing_itself_and_says_so_when_the_time_is_over(site: Site) -> None:
    result = call(site, "submit", "quick", "--wait", "0.1", "--json")
    assert (result.exit_code, json.loads(result.stdout)["status"]) == (3, "PENDING")
    assert call(site, "submit", "quick", "--wait", "0").exit_code == 3


def test_status_shows_a_job(busy: Site) -> None:
    done, failed = busy.run("quick").json, busy.run("refused").json
    shown = printed(busy, "status", done["jobId"])
    assert shown == done
    shown = printed(busy, "status", failed["jobId"])
    assert shown["error"] == {
        "title": "Ledger does not balance",
        "detail": "Two entries differ.",
        "code": "ledger",
    }
    result = call(busy, "status", failed["jobId"].upper())
    assert result.exit_code == 0
    assert "FAILED" in result.stdout


def test_cancel_ends_an_active_job_once(site: Site) -> None:
    job_id, other = site.submit(), site.submit()
    assert call(site, "cancel", job_id).exit_code == 0
    assert site.status(job_id).json["status"] == "CANCELLED"
    assert printed(site, "cancel", other) == site.status(other).json
    result = call(site, "cancel", job_id)
    assert result.exit_code == 1
    assert "CANCELLED" in result.stderr


@pytest.mark.parametrize("command", ["status", "cancel"])
def test_an_unknown_job_is_not_found(site: Site, command: str) -> None:
    for job_id in (UNKNOWN_ID, "fake", UNKNOWN_ID.replace("-", ""), ""):
        result = call(site, command, job_id)
        assert result.exit_code == 2
        assert job_id in result.stderr


def test_recover_makes_one_pass(engine: Engine) -> None:
    clock = Clock()
    with serving(TestJobs(), engine, init={"clock": clock}) as site:
        assert call(site, "recover").output.split()[0] == "0"
        assert printed(site, "recover") == {"recovered": 0}
        job_id = site.submit("remote")
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE async_jobs SET status = 'PROCESSING', attempt = 1,"
                f" execution_token = '{UNKNOWN_ID}', started_at = '{START.isoformat(' ')}'"
            )
        clock.tick(3600)
        result = call(site, "recover")
        assert (result.exit_code, result.output.split()[0]) == (0, "1")
        assert site.status(job_id).json["code"] == "processing-timeout"


@pytest.mark.parametrize("args", ["submit quick", f"status {UNKNOWN_ID}", f"cancel {UNKNOWN_ID}", "recover"])
def test_without_tables_a_command_says_what_to_run(
    empty: Site, caplog: pytest.LogCaptureFixture, args: str
) -> None:
    result = call(empty, *args.split())
    assert result.exit_code == 1
    assert "flask async-jobs db upgrade" in result.stderr + caplog.text


# Tables


def test_the_tables_go_up_down_and_up(empty: Site, empty_database_url: str) -> None:
    assert call(empty, "db", "current").output == "none\n"
    assert call(empty, "db", "upgrade").exit_code == 0
    version = call(empty, "db", "current").output
    assert version.strip() not in ("", "none")
    assert {"async_jobs", VERSION_TABLE} <= table_names(empty_database_url)
    assert empty.post("quick").status_code == 202
    assert call(empty, "db", "upgrade").exit_code == 0
    assert call(empty, "db", "downgrade", "base").exit_code == 0
    assert table_names(empty_database_url) <= {VERSION_TABLE}
    assert call(empty, "db", "current").output == "none\n"
    assert call(empty, "db", "upgrade").exit_code == 0
    assert call(empty, "db", "current").output == version


def test_one_version_down_is_the_default(empty: Site) -> None:
    call(empty, "db", "upgrade")
    newest = call(empty, "db", "current").output
    assert call(empty, "db", "downgrade").exit_code == 0
    assert call(empty, "db", "current").output != newest


def test_a_version_that_there_is_not_is_a_usage_error(empty: Site) -> None:
    for args in ("upgrade nonsense", "downgrade nonsense", "downgrade"):
        result = call(empty, "db", *args.split())
        assert result.exit_code == 2
        assert result.stderr.strip()


@pytest.mark.parametrize("args", ["db upgrade", "db current", f"status {UNKNOWN_ID}", "submit quick"])
def test_a_database_that_is_down_is_no_traceback(args: tuple[str, ...]) -> None:
    for url in ("postgresql+psycopg://me@127.0.0.1:1/none", "sqlite:////nowhere/none.sqlite"):
        engine = create_engine(url)
        with serving(TestJobs(), engine) as site:
            assert call(site, *args.split()).exit_code == 1
        engine.dispose()


def test_location_is_the_folder_of_the_versions(site: Site) -> None:
    folder = Path(call(site, "db", "location").output.removesuffix("\n"))
    assert list(folder.glob("0001*.py"))


def test_the_schema_makes_tables_that_work(empty: Site, empty_database_url: str) -> None:
    ddl = call(empty, "schema").output
    engine = create_engine(empty_database_url)
    with engine.begin() as connection:
        for statement in filter(str.strip, ddl.split(";")):
            connection.exec_driver_sql(statement)
    engine.dispose()
    assert "async_jobs" in table_names(empty_database_url)
    assert empty.status(empty.submit()).json["status"] == "PENDING"


def test_watch_follows_a_job_to_its_end_and_exits_by_it(busy: Site) -> None:
    for type, code, status in (("quick", 0, "COMPLETED"), ("refused", 1, "FAILED")):
        result = call(busy, "watch", busy.submit(type))
        assert result.exit_code == code
        assert result.stdout.splitlines()[-1] == status
    assert call(busy, "watch", str(uuid4())).exit_code == 2
