import os
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, inspect, text

from tests.servers.postgres import Databases, PostgresServer
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            result = connection.execute(text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_server_that_ends_and_starts_again_keeps_its_rows_and_its_url(
    breakable_postgres: PostgresServer, end: str
) -> None:
    url = breakable_postgres.url
    execute(url, "CREATE TABLE kept AS SELECT 42 AS answer")
    getattr(breakable_postgres, end)()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url.replace("+psycopg", ""), connect_timeout=2)
    breakable_postgres.start()
    assert breakable_postgres.url == url
    assert execute(url, "SELECT answer FROM kept") == [(42,)]


def test_a_restart_throws_out_who_is_connected(breakable_postgres: PostgresServer) -> None:
    with psycopg.connect(breakable_postgres.url.replace("+psycopg", "")) as connection:
        connection.execute("SELECT 1")
        breakable_postgres.restart()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_a_copy_of_a_template_is_independent_of_it(postgres: Databases) -> None:
    template = postgres.create_database("original")
    execute(template, "CREATE TABLE thing AS SELECT 1 AS number")
    copy = postgres.create_database("copy", template="original")
    execute(copy, "INSERT INTO thing VALUES (2)")
    assert execute(template, "SELECT number FROM thing") == [(1,)]
    assert execute(copy, "SELECT number FROM thing ORDER BY number") == [(1,), (2,)]
    postgres.drop_database("original")
    postgres.drop_database("copy")
    assert execute(postgres.url, "SELECT 1 FROM pg_database WHERE datname IN ('original', 'copy')") == []


def test_a_database_is_dropped_under_an_open_connection(postgres: Databases) -> None:
    url = postgres.create_database("busy").replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        postgres.drop_database("busy")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_a_server_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import sys\nfrom tests.servers.postgres import PostgresServer\n"
        "server = PostgresServer()\nserver.start()\n"
        "print(server.pid, server.home, flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid, home = parent.stdout.readline().split()
        parent.kill()
    wait_until(lambda: not _alive(int(pid)), message="the end of the server")
    shutil.rmtree(home)


def test_a_migrated_database_has_the_tables_of_the_library(database_url: str) -> None:
    engine = create_engine(database_url)
    assert "async_jobs" in inspect(engine).get_table_names()
    engine.dispose()


def test_an_empty_database_has_no_table(empty_database_url: str) -> None:
    engine = create_engine(empty_database_url)
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def _alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has reaped yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
