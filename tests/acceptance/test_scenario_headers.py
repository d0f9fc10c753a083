"""What may be kept, and when to ask again."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.acceptance.apps.harness import CONSUMER, Consumer, environment, state_of
from tests.serving import Serve
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

BY_DEFAULT = {200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501}
UNKNOWN = "00000000-0000-4000-8000-000000000000"
JSON = {"Content-Type": "application/json"}


class Cache:
    """A cache in front of the application: keeps what RFC 9111 section 3 lets it, and echoes validators."""

    def __init__(self, http: httpx.Client) -> None:
        self.kept: dict[str, httpx.Response] = {}
        self._http = http
        self._last: dict[str, httpx.Response] = {}

    def get(self, url: str) -> httpx.Response:
        """Answer from what is kept, or ask the application."""
        if url in self.kept:
            return self.kept[url]
        etag = self._last[url].headers.get("ETag") if url in self._last else None
        answer = self._http.get(url, headers={"If-None-Match": etag} if etag else {})
        if answer.status_code != 304:
            self._last[url] = answer
        if may_be_kept(answer):
            self.kept[url] = answer
        return self._last[url]


def may_be_kept(answer: httpx.Response) -> bool:
    directives = {name.partition("=")[0].strip() for name in answer.headers.get("Cache-Control", "").split(",")}
    explicit = "Expires" in answer.headers or bool(directives & {"public", "max-age", "s-maxage"})
    return "no-store" not in directives and (explicit or answer.status_code in BY_DEFAULT)


def test_a_cache_keeps_nothing_and_sees_every_state_at_once(consumer: Consumer, tmp_path: Path) -> None:
    consumer.serve("--threads", "4", processing_concurrency_limit=1)
    cache, before, gate = Cache(consumer.http), tmp_path / "before", tmp_path / "gate"
    blocking = consumer.submit("gate", {"file": str(before)})
    url = consumer.submit("gate", {"file": str(gate)}).headers["Location"]
    job_id = url.split("/")[-2]
    addresses = [url, url.removesuffix("/status"), url.replace("/status", "/operation")]
    seen = []
    for state, open_the_way in (("PENDING", None), ("PROCESSING", before), ("COMPLETED", gate)):
        if open_the_way:
            open_the_way.touch()
        wait_until(lambda wanted=state: consumer.store.job(job_id).status == wanted, 10, state)
        answers = [cache.get(address).json()["status"] for address in addresses]
        assert answers[:2] == [state, state]
        seen.append(answers[2])
    assert seen == ["NotStarted", "Running", "Succeeded"]
    assert cache.kept == {}
    consumer.follow(blocking)


def test_no_answer_may_be_stored_whatever_its_status(served: Consumer) -> None:
    ended, failed = served.run("quick").json()["jobId"], served.run("boom", {"text": "no"})
    served.submit("quick", key="stored")
    http = served.http
    items, key = {"items": [{"itemId": "a"}]}, {"Idempotency-Key": "stored"}
    batch = http.post("/batches/quick", json=items, headers=key)
    url = batch.json()["statusUrl"]
    wait_until(lambda: http.get(url).json()["status"] == "COMPLETED", 15, "the batch")
    answers = {
        "accepted": (202, served.submit("quick")),
        "replayed": (202, served.submit("quick", key="stored")),
        "status": (200, http.get(f"/jobs/{ended}/status")),
        "head": (200, http.head(f"/jobs/{ended}/status")),
        "operation": (200, http.get(f"/jobs/{ended}/operation")),
        "options": (204, http.options(f"/jobs/{ended}")),
        "unknown job": (404, http.get(f"/jobs/{UNKNOWN}/status")),
        "unknown path": (404, http.get(f"/jobs/{ended}/no/such/path")),
        "method": (405, http.put(f"/jobs/{ended}/status")),
        "terminal": (409, http.delete(f"/jobs/{ended}")),
        "failed": (422, failed),
        "conflict": (422, served.submit("copy", key="stored")),
        "schema": (422, served.submit("boom", {"text": 5})),
        "type": (400, served.submit("unheard-of")),
        "key": (400, served.submit("quick", key="not one")),
        "payload": (400, served.submit("quick", {"any": 1})),
        "malformed": (400, http.post("/jobs/boom", content=b"{", headers=JSON)),
        "media type": (415, http.post("/jobs/boom", content=b"<a/>", headers={"Content-Type": "text/xml"})),
        "too large": (413, served.submit("boom", {"text": "x" * 300_000})),
        "log": (200, http.get(f"/jobs/{ended}/log")),
        "no result": (204, http.get(f"/jobs/{ended}/result")),
        "not completed": (409, http.get(f"{failed.json()['instance'].removesuffix('/status')}/result")),
        "batch": (202, batch),
        "ended batch": (200, http.post("/batches/quick", json=items, headers=key)),
        "summary": (200, http.get(url)),
        "items": (200, http.get(f"{url}/items")),
        "no page": (422, http.get(f"{url}/items?limit=0")),
        "unknown batch": (404, http.get(f"/batches/{UNKNOWN}")),
        "terminal batch": (409, http.delete(url)),
        "other items": (422, http.post("/batches/copy", json=items, headers=key)),
        "no items": (422, http.post("/batches/quick", json={"items": []}, headers=key)),
        "no key": (400, http.post("/batches/quick", json=items)),
    }
    assert {name: answer.status_code for name, (_, answer) in answers.items()} == {
        name: status for name, (status, _) in answers.items()
    }
    assert {name for name, (_, answer) in answers.items() if answer.headers["Cache-Control"] != "no-store"} == set()
    assert {name for name, (_, answer) in answers.items() if may_be_kept(answer)} == set()
    problems = {name: answer for name, (status, answer) in answers.items() if status >= 400}
    assert {answer.headers["Content-Type"] for answer in problems.values()} == {"application/problem+json"}


def test_a_database_without_tables_is_a_503_that_nobody_stores(serve: Serve, empty_database_url: str) -> None:
    served = serve(CONSUMER, server="flask", env=environment(empty_database_url, retry_after_seconds=90))
    for method, path in (("POST", "/jobs/quick"), ("GET", f"/jobs/{UNKNOWN}"), ("DELETE", f"/jobs/{UNKNOWN}")):
        answer = httpx.request(method, f"{served.url}{path}")
        assert (answer.status_code, answer.headers["Content-Type"]) == (503, "application/problem+json")
        assert answer.headers["Cache-Control"] == "no-store"
        assert int(answer.headers["Retry-After"]) >= 1
    assert served.log_text().count("flask async-jobs db upgrade") == 1


@pytest.fixture(params=[5, 90])
def hinting(consumer: Consumer, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Consumer, str]]:
    """A consumer that runs one job at a time, and the `Retry-After` it is configured with."""
    consumer.serve("--threads", "4", processing_concurrency_limit=1, retry_after_seconds=request.param)
    yield consumer, str(request.param)
    (tmp_path / "gate").touch()


def test_retry_after_is_given_for_active_jobs_and_only_for_them(
    hinting: tuple[Consumer, str], tmp_path: Path
) -> None:
    consumer, seconds = hinting
    running = consumer.submit("gate", {"file": str(tmp_path / "gate")})
    wait_until(consumer.store.runs, 10, "the gate")
    waiting = consumer.submit("quick", key="again")
    again = consumer.submit("quick", key="again")
    assert again.json()["jobId"] == waiting.json()["jobId"]
    active = [running, waiting, again]
    for accepted in (running, waiting):
        active += [consumer.http.get(accepted.headers[name]) for name in ("Location", "Operation-Location")]
    assert [answer.headers.get_list("Retry-After") for answer in active] == [[seconds]] * len(active)

    cancelled = consumer.http.delete(waiting.json()["cancelUrl"])
    (tmp_path / "gate").touch()
    ended = [consumer.follow(running), cancelled, consumer.follow(waiting), consumer.run("boom", {"text": "no"})]
    assert [state_of(answer) if answer.status_code != 202 else "" for answer in ended] == [
        "COMPLETED",
        "",
        "CANCELLED",
        "FAILED",
    ]
    quiet = [
        *ended,
        consumer.http.get(running.headers["Operation-Location"]),
        consumer.submit("quick", key="again"),
        consumer.http.get(f"/jobs/{UNKNOWN}/status"),
        consumer.http.delete(running.json()["cancelUrl"]),
        consumer.submit("copy", key="again"),
    ]
    assert [answer.status_code for answer in quiet] == [200, 202, 200, 422, 200, 202, 404, 409, 422]
    assert ["Retry-After" in answer.headers for answer in quiet] == [False] * len(quiet)
    assert quiet[5].json()["jobId"] == waiting.json()["jobId"]


@pytest.mark.parametrize("seconds", [0, 0.5, -1, "soon", True])
def test_a_retry_after_that_is_no_whole_number_of_seconds_fails_the_start(
    serve: Serve, sqlite_url: str, seconds: object
) -> None:
    with pytest.raises(RuntimeError, match=rf"ASYNC_JOBS_RETRY_AFTER_SECONDS is {seconds!r}.*such as"):
        serve(CONSUMER, server="flask", env=environment(sqlite_url, retry_after_seconds=seconds))
