"""Ids and paths that no well-behaved client would send."""

import re
import uuid

import httpx
import pytest

from tests.acceptance.apps.harness import Consumer
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

UNKNOWN = str(uuid.UUID(int=0, version=4))
ROUTES = [
    ("GET", "/jobs/{}/status"),
    ("GET", "/jobs/{}"),
    ("GET", "/jobs/{}/operation"),
    ("GET", "/jobs/{}/events"),
    ("GET", "/jobs/{}/log"),
    ("GET", "/jobs/{}/result"),
    ("DELETE", "/jobs/{}"),
    ("DELETE", "/jobs/{}/status"),
    ("POST", "/jobs/{}/cancel"),
    ("GET", "/batches/{}"),
    ("GET", "/batches/{}/items"),
    ("GET", "/batches/{}/events"),
    ("DELETE", "/batches/{}"),
]
NONSENSE = {
    "word": "fake",
    "long": "x" * 1_000,
    "nul": "%00",
    "line break": "%0d%0a",
    "arabic digits": "%D9%A1%D9%A2%D9%A3",
    "arabic uuid": UNKNOWN.replace("0", "%D9%A0"),
    "broken utf-8": "%ff%fe",
    "sql": "'%20OR%201=1--",
    "braces": "%7B" + UNKNOWN + "%7D",
    "urn": "urn:uuid:" + UNKNOWN,
    "line break behind": UNKNOWN + "%0a",
    "blank behind": UNKNOWN + "%20",
    "number": "-1",
}


@pytest.mark.parametrize(("method", "route"), ROUTES)
@pytest.mark.parametrize("name", NONSENSE)
def test_an_id_that_is_nonsense_is_answered_like_one_that_is_unknown(
    served: Consumer, name: str, method: str, route: str
) -> None:
    unknown = served.http.request(method, route.format(UNKNOWN))
    answer = served.http.request(method, route.format(NONSENSE[name]))
    assert unknown.status_code == answer.status_code == 404
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.headers["Cache-Control"] == "no-store"
    assert without_instance(answer) == without_instance(unknown)
    assert re.fullmatch("[!-~]+", answer.json()["instance"])
    assert served.new_trouble() == []


@pytest.mark.parametrize("prefix", ["/jobs", "/batches"])
@pytest.mark.parametrize("name", [*NONSENSE, "uuid"])
def test_a_type_that_is_nonsense_is_refused_and_nothing_is_stored(served: Consumer, name: str, prefix: str) -> None:
    before = served.store.states().total()
    body, key = {"items": [{"itemId": "a"}]} if prefix == "/batches" else {}, {"Idempotency-Key": "nonsense"}
    answer = served.http.post(f"{prefix}/{NONSENSE.get(name, UNKNOWN)}", json=body, headers=key)
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json")
    assert answer.json()["type"].rpartition(":")[2] in ("unknown-type", "invalid-type")
    assert served.store.states().total() == before
    assert served.new_trouble() == []


def test_the_forms_of_an_id_are_the_36_characters_in_either_case(served: Consumer) -> None:
    job_id = served.run("quick").json()["jobId"]
    for route in ("/jobs/{}/status", "/jobs/{}", "/jobs/{}/operation", "/jobs/{}/log"):
        assert served.http.get(route.format(job_id.upper())).status_code == 200
        assert served.http.get(route.format(job_id.upper())).json() == served.http.get(route.format(job_id)).json()
        undashed = served.http.get(route.format(job_id.replace("-", "")))
        assert undashed.status_code == 404
        assert without_instance(undashed) == without_instance(served.http.get(f"/jobs/{UNKNOWN}"))
    assert served.http.delete(f"/jobs/{job_id.upper()}").status_code == 409
    assert served.http.delete(f"/jobs/{job_id.replace('-', '')}").status_code == 404


def without_instance(problem: httpx.Response) -> dict[str, object]:
    return {name: value for name, value in problem.json().items() if name != "instance"}


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/jobs/{}/none", 404),
        ("GET", "/jobs/{}/status/none", 404),
        ("PATCH", "/jobs/{}/status", 405),
        ("BREW", "/jobs/{}", 405),
        ("PUT", "/jobs/{}/log", 405),
        ("GET", "/batches/{}/none", 404),
        ("GET", "/batches/{}/items/none", 404),
        ("POST", "/batches/{}/items", 405),
        ("BREW", "/batches/{}/events", 405),
        ("GET", "/docs/none", 404),
        ("GET", "/docs/assets", 404),
        ("GET", "/docs/assets/none.js", 404),
        ("GET", "/docs/assets/..%2f__init__.py", 404),
        ("DELETE", "/docs", 405),
        ("POST", "/docs/openapi.json", 405),
    ],
)
def test_below_the_prefixes_every_error_is_a_problem_that_nobody_stores(
    served: Consumer, ended_job: str, method: str, path: str, expected: int
) -> None:
    answer = served.http.request(method, path.format(ended_job))
    assert (answer.status_code, answer.headers["Content-Type"]) == (expected, "application/problem+json")
    assert answer.headers["Cache-Control"] == "no-store"
    assert ("Allow" in answer.headers) == (expected == 405)


PLAIN = [
    ("POST", "/jobs/quick", 202),
    ("GET", "/jobs/quick", 405),
    ("GET", "/jobs/{}/status", 200),
    ("HEAD", "/jobs/{}/status", 200),
    ("GET", "/jobs/{}", 200),
    ("GET", "/jobs/{}/operation", 200),
    ("GET", "/jobs/{}/events", 200),
    ("GET", "/jobs/{}/log", 200),
    ("GET", "/jobs/{}/result", 204),
    ("DELETE", "/jobs/{}", 409),
    ("DELETE", "/jobs/{}/status", 409),
    ("POST", "/jobs/{}/cancel", 409),
    ("OPTIONS", "/jobs/{}/status", 204),
    ("GET", "/jobs", 404),
    ("POST", "/jobs", 404),
    ("POST", "/batches/quick", 400),
    ("GET", "/batches/quick", 405),
    ("GET", "/batches/{batch}", 200),
    ("HEAD", "/batches/{batch}", 200),
    ("GET", "/batches/{batch}/items", 200),
    ("GET", "/batches/{batch}/events", 200),
    ("DELETE", "/batches/{batch}", 409),
    ("OPTIONS", "/batches/{batch}", 204),
    ("GET", "/batches", 404),
    ("GET", "/docs", 200),
    ("GET", "/docs/openapi.json", 200),
]


@pytest.fixture(scope="module")
def ended_job(served: Consumer) -> str:
    job_id: str = served.run("quick").json()["jobId"]
    return job_id


@pytest.fixture(scope="module")
def ended_batch(served: Consumer) -> str:
    accepted = served.http.post(
        "/batches/quick", json={"items": [{"itemId": "a"}]}, headers={"Idempotency-Key": "ended"}
    ).json()
    wait_until(lambda: served.http.get(accepted["statusUrl"]).json()["status"] == "COMPLETED", 15, "the batch")
    batch_id: str = accepted["batchId"]
    return batch_id


@pytest.mark.parametrize(("method", "path", "expected"), PLAIN)
def test_a_path_with_more_slashes_is_served_or_unknown_but_never_redirected(
    served: Consumer, ended_job: str, ended_batch: str, method: str, path: str, expected: int
) -> None:
    path = path.format(ended_job, batch=ended_batch)
    behind_tls = {"X-Forwarded-Proto": "https", "X-Forwarded-Host": "api.example"}
    assert served.http.request(method, path, headers=behind_tls).status_code == expected
    for variant in variants(path):
        url = f"{served.server.url}{variant}"
        assert served.http.request(method, url, headers=behind_tls).status_code in (expected, 404), variant
    assert served.new_trouble() == []


def variants(path: str) -> set[str]:
    """The path with a final slash, or two, and with each of its slashes doubled."""
    places = [place for place, character in enumerate(path) if character == "/"]
    return {f"{path}/", f"{path}//", *(f"{path[:place]}/{path[place:]}" for place in places)}
