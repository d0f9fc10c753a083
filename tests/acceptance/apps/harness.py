"""The consumer application under test: its servers, a client for it, and its database. A pytest plugin."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any, TypeVar

import httpx

from tests.acceptance.apps.store import TERMINAL, Store
from tests.servers.app_server import AppServer
from tests.waiting import wait_until

T = TypeVar("T")

CONSUMER = Path(__file__).with_name("consumer.py")
SHORT = {
    "recovery_scan_interval": 0.2,
    "recovery_redispatch_after": 1,
    "recovery_processing_timeout": 3,
    "processing_poll_interval": 0.1,
}
TROUBLE = re.compile(r"^.*(?:\bERROR\b|\bCRITICAL\b|Traceback).*$", re.MULTILINE)


class Consumer:
    """One consumer application on one database. `http` opens a connection for every request."""

    def __init__(self, url: str, start: Callable[..., AppServer]) -> None:
        self.store = Store(url)
        self.http = client()
        self.server: AppServer | None = None
        self._start = start
        self._told = 0

    def close(self) -> None:
        """Check the audit and let go of everything."""
        self.http.close()
        self.store.close()

    def serve(
        self,
        *args: str,
        server: str = "gunicorn",
        application: Path = CONSUMER,
        debug: bool = False,
        **settings: Any,
    ) -> AppServer:
        """Serve the application; `settings` are the library's, in lower case, over short intervals."""
        env = environment(self.store.url, **{**SHORT, **settings})
        served = self._start(application, *args, server=server, debug=debug, env=env)
        self.http.base_url = served.url
        self.server = served
        return served

    def submit(
        self, type: str, payload: Any = None, key: str | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """POST a submission, and return the answer whatever it is."""
        sent = {**({} if key is None else {"Idempotency-Key": key}), **(headers or {})}
        body = {} if payload is None else {"json": payload}
        return self.http.post(f"/jobs/{type}", headers=sent, **body)

    def follow(self, answer: httpx.Response, timeout: float = 15) -> httpx.Response:
        """Poll `Location` until the job has ended, and return its last status."""
        assert answer.status_code == 202, answer.text
        return wait_until(lambda: self._ended(answer.headers["Location"]), timeout, "the end of the job")

    def end_of(self, job_id: str, timeout: float = 15) -> httpx.Response:
        """Poll the status of a job at the present server until it has ended, and return it."""
        return wait_until(lambda: self._ended(f"/jobs/{job_id}/status"), timeout, "the end of the job")

    def run(self, type: str, payload: Any = None) -> httpx.Response:
        """Submit, follow to the end, and return the last status."""
        return self.follow(self.submit(type, payload))

    def processes(self, count: int) -> set[int]:
        """Send requests until `count` processes have answered one, and return their ids."""
        seen: set[int] = set()

        def all_seen() -> bool:
            seen.update(at_once([lambda: int(self.http.get("/").json()["pid"])] * 2 * count))
            return len(seen) >= count

        wait_until(all_seen, 30, f"{count} processes")
        return seen

    def wait_for_states(self, timeout: float = 30, **counts: int) -> None:
        """Wait until there are exactly so many jobs in these states, and none in any other."""
        wanted = Counter(counts)
        wait_until(lambda: self.store.states() == wanted, timeout, lambda: f"{wanted}, not {self.store.states()}")

    def new_trouble(self) -> list[str]:
        """The lines of the server's log that tell of an error, since this was asked last."""
        assert self.server is not None
        found = TROUBLE.findall(self.server.log_text())
        told, self._told = self._told, len(found)
        return found[told:]

    def answers(self, url: str) -> list[int]:
        """The status codes of all answers to `url` (its path counts), where the server logs them."""
        assert self.server is not None
        path = re.escape(httpx.URL(url).path)
        return [
            int(code) for code in re.findall(rf"^answered (\d+) to {path}$", self.server.log_text(), re.MULTILINE)
        ]

    def _ended(self, location: str) -> httpx.Response | None:
        try:
            status = self.http.get(location)
        except httpx.TransportError:  # a worker that dies takes its connections along
            return None
        return status if state_of(status) in TERMINAL else None


def state_of(status: httpx.Response) -> Any:
    """The job's state, whatever the answer: a problem has it under another name."""
    assert status.status_code in (200, 422), status.text
    return status.json()["status" if status.status_code == 200 else "jobStatus"]


def environment(url: str, **settings: Any) -> dict[str, str]:
    """The environment of an application; names in capitals are its own, the others are the library's settings."""
    own = {name: value for name, value in settings.items() if name.isupper()}
    library = {f"ASYNC_JOBS_{name.upper()}": value for name, value in settings.items() if not name.isupper()}
    values = {**own, **library}
    return {"DATABASE_URL": url} | {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()
    }


def client() -> httpx.Client:
    """A client that opens a connection for every request."""
    return httpx.Client(timeout=30, verify=False, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Make all calls at the same moment, each on a thread of its own, and return what they gave."""
    barrier = Barrier(len(calls))

    def call(function: Callable[[], T]) -> T:
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(call, calls))


@contextmanager
def consuming(url: str, start: Callable[..., AppServer]) -> Iterator[Consumer]:
    """A consumer application on a migrated database; at the end its audit is checked."""
    consumer = Consumer(url, start)
    try:
        yield consumer
    finally:
        consumer.close()
