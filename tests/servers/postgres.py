"""A real PostgreSQL for tests: started here, or any server named by TEST_DATABASE_URL."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

import psycopg
from psycopg import sql
from sqlalchemy import URL, make_url

from tests.servers.postgres_binaries import has_extension, server_account, usable_binaries
from tests.servers.processes import free_port, launched, start_process
from tests.waiting import wait_until

OVERRIDE = "TEST_DATABASE_URL"
START_TIMEOUT = 30
STOP_TIMEOUT = 20
INITDB = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"]
MEMORY = Path("/dev/shm")
ROOM = 4 * 2**30  # bytes: several servers of a test run, each with the largest table of a test
OPTIONS = {
    "max_connections": "300",
    "fsync": "off",  # but a synchronous commit: without it a kill would lose the last commits
    "full_page_writes": "off",
    "unix_socket_directories": "",  # TCP only, so the length of the directory's name does not matter
    "timezone": "UTC",
}


class Databases:
    """A PostgreSQL server on which tests make databases of their own."""

    _copying = sql.SQL("")

    def __init__(self, url: str) -> None:
        self._url = make_url(url).set(drivername="postgresql+psycopg")

    @property
    def url(self) -> str:
        """The URL of the maintenance database."""
        return _text(self._url)

    def url_of(self, name: str) -> str:
        """The URL of the database `name`."""
        return _text(self._url.set(database=name))

    def create_database(self, name: str, template: str | None = None) -> str:
        """Create a database and return its URL; a `template` is copied, and nobody may be connected to it."""
        source = sql.Identifier(template or "template1")
        self._execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}{}").format(sql.Identifier(name), source, self._copying)
        )
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, and throw out whoever is still connected; one that does not exist is no error."""
        self._execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self._dsn, autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement)

    @property
    def _dsn(self) -> str:
        return _text(self._url.set(drivername="postgresql"))


class PostgresServer(Databases):
    """A PostgreSQL of this test run alone, in a temporary directory, on a free port of 127.0.0.1.

    It is as careless with its disk as it may be, survives `kill` and `restart` with all committed rows under
    the same URL, and dies with the test run (on Linux, if started from the main thread). As a context manager
    it is started and, at the end, stopped and deleted; `home` is its directory. Server `options` replace those.
    """

    _copying = sql.SQL(" STRATEGY file_copy")  # without the WAL of each page, in half the time

    def __init__(self, **options: str) -> None:
        super().__init__("postgresql://postgres@127.0.0.1/postgres")
        self._options = {**OPTIONS, **options}
        self._account = server_account()
        self.home: Path | None = None
        self._bin = self._data = Path()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of the postmaster."""
        return self._running().pid

    @property
    def log(self) -> str:
        """What the server wrote so far."""
        path = self.home and self.home / "log"
        return path.read_text(errors="replace") if path and path.exists() else ""

    def start(self) -> None:
        """Start the server and return when it takes connections. The first time, make its directory.

        A server that ends at once is started again: its port may be taken (the first time another one is
        chosen), or the children of a killed postmaster may still hold its memory.
        """
        if self._process is not None:
            raise RuntimeError("the server is running")
        if self.home is None:
            self._make()
        fresh = self._url.port is None
        wait_until(lambda: self._started(fresh), START_TIMEOUT, lambda: f"PostgreSQL:\n{self.log[-4000:]}")

    def stop(self) -> None:
        """Stop the server in order; connections are thrown out."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Stop the server without a chance to tidy up (SIGKILL); what was committed stays."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop in order and start again under the same URL."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server if it runs and delete its directory."""
        if self._process is not None:
            self._end(signal.SIGQUIT)
        if self.home is not None:
            for directory in (self._data, self.home):
                shutil.rmtree(directory, ignore_errors=True)
            self.home = None

    def _make(self) -> None:
        shared = Path("/tmp") if self._account.user else None  # TMPDIR may be closed to the account
        home = self._directory(shared)
        self._data = self._data_directory(home)
        self.home = home
        self._bin = usable_binaries(self._account, home)
        command = [str(self._bin / "initdb"), "-D", str(self._data), *INITDB]
        done = subprocess.run(
            launched(command, self._account), capture_output=True, text=True, cwd=home, check=False
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed:\n{done.stdout}\n{done.stderr}")

    def _data_directory(self, home: Path) -> Path:
        return home / "data"

    def _directory(self, parent: Path | None) -> Path:
        directory = Path(tempfile.mkdtemp(prefix="pg-", dir=parent))
        if self._account.user:
            os.chown(directory, *self._account)
        return directory

    def _started(self, fresh: bool) -> bool:
        if self._process is None:
            if fresh:
                self._url = self._url.set(port=free_port())
            self._process = self._launch()
        try:
            self._process.wait(timeout=0.01)
        except subprocess.TimeoutExpired:
            return self._answers()
        self._process = None
        return False

    def _launch(self) -> subprocess.Popen[bytes]:
        assert self.home is not None
        options = dict(self._options, listen_addresses="127.0.0.1", port=str(self._url.port))
        if has_extension(self._bin, "pg_stat_statements"):
            options["shared_preload_libraries"] = "pg_stat_statements"
        settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        command = [str(self._bin / "postgres"), "-D", str(self._data), *settings]
        return start_process(
            command, self.home / "log", account=self._account, last_words=signal.SIGINT, cwd=self.home
        )

    def _answers(self) -> bool:
        """Whether *this* server takes connections: on a taken port another one would."""
        try:
            with psycopg.connect(self._dsn, connect_timeout=2) as connection:
                row = connection.execute("SHOW data_directory").fetchone()
        except psycopg.OperationalError:
            return False
        return row == (str(self._data),)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process

    def _end(self, how: signal.Signals) -> None:
        process = self._running()
        process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._process = None


class PostgresInMemory(PostgresServer):
    """A server whose data is in memory, if there is room for it.

    Hundreds of databases that come and go cost a file system on a disk more than the tests' own statements.
    """

    def _data_directory(self, home: Path) -> Path:
        has_room = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM
        return self._directory(MEMORY) if has_room else super()._data_directory(home)


def override() -> str | None:
    """The URL of a server that the caller provides, where tests may create databases."""
    return os.environ.get(OVERRIDE) or None


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)
