"""What an Idempotency-Key promises."""

import http.client
import json
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from tests.acceptance.apps.harness import Consumer, at_once

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

ROUNDS = {"postgresql": 20, "sqlite": 5}
CONFLICT = "urn:flask-async-jobs:problem:idempotency-key-conflict"
REWRITTEN = '{ "value":{"b":[1,{"d":"\\u00e9","c":null}],"a":1}}\n'
REFUSED = "urn:flask-async-jobs:problem:invalid-idempotency-key"


def test_fifty_submissions_with_one_key_at_the_same_moment_are_one_job_for_ever(consumer: Consumer) -> None:
    consumer.serve("--workers", "4")
    consumer.processes(4)
    rounds = ROUNDS[consumer.store.url.partition(":")[0].partition("+")[0]]
    ids = []
    for number in range(rounds):
        answers = at_once([lambda key=f"round-{number}": consumer.submit("quick", key=key)] * 50)
        assert {answer.status_code for answer in answers} == {202}
        dispositions = sorted(answer.json()["disposition"] for answer in answers)
        assert dispositions == ["created", *["replayed"] * 49]
        [job_id] = {answer.json()["jobId"] for answer in answers}
        ids.append(job_id)
    consumer.wait_for_states(COMPLETED=rounds)

    consumer.store.age(timedelta(hours=1))
    later = [consumer.submit("quick", key=f"round-{number}") for number in range(rounds)]
    assert [answer.json()["jobId"] for answer in later] == ids
    assert {(answer.status_code, answer.json()["status"]) for answer in later} == {(202, "COMPLETED")}
    consumer.run("quick")
    runs = [run.job_id for run in consumer.store.runs()]
    assert len(runs) == rounds + 1
    assert runs[:rounds] == ids
    assert consumer.store.states() == {"COMPLETED": rounds + 1}
    assert consumer.new_trouble() == []


def test_a_key_used_again_for_another_type_is_refused(served: Consumer) -> None:
    first = served.submit("quick", key="other-type")
    before = served.store.states().total()
    for other in ("copy", "context"):
        refused = served.submit(other, key="other-type")
        assert (refused.status_code, refused.json()["title"]) == (422, "Idempotency-Key conflict")
        assert (refused.headers["Content-Type"], refused.json()["type"]) == ("application/problem+json", CONFLICT)
    assert served.store.states().total() == before
    assert served.submit("quick", key="other-type").json()["jobId"] == first.json()["jobId"]


@pytest.mark.parametrize(
    ("first", "second"),
    [({"a": 1}, {"a": 2}), ([1, 2], [2, 1]), (1, "1"), (1, True), (0, None), ({"a": None}, {}), ("a", "A")],
    ids=repr,
)
def test_a_key_used_again_for_another_payload_is_refused(served: Consumer, first: object, second: object) -> None:
    key = f"other-payload-{abs(hash((repr(first), repr(second))))}"
    accepted = served.submit("ret", {"value": first}, key=key)
    before = served.store.states().total()
    refused = served.submit("ret", {"value": second}, key=key)
    assert (refused.status_code, refused.json()["type"]) == (422, CONFLICT)
    assert served.store.states().total() == before
    again = served.submit("ret", {"value": first}, key=key)
    assert (again.status_code, again.json()["jobId"]) == (202, accepted.json()["jobId"])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            '{"value": {"a": 1, "b": [1, {"c": null, "d": "é"}]}}',
            '{ "value":{"b":[1,{"d":"\\u00e9","c":null}],"a":1}}\n',
        ),
        ('{"value": 1}', '{"value": 1.0}'),
        ('{"value": 45.00}', '{"value": 4.5e1}'),
        ('{"value": 0}', '{"value": -0.0}'),
    ],
)
def test_a_key_used_again_for_an_equal_payload_answers_with_the_first_job(
    served: Consumer, first: str, second: str
) -> None:
    headers = {"Content-Type": "application/json", "Idempotency-Key": f"equal-{len(first)}-{len(second)}"}
    answers = [served.http.post("/jobs/ret", content=body.encode(), headers=headers) for body in (first, second)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert [answer.json()["disposition"] for answer in answers] == ["created", "replayed"]
    assert answers[0].json()["jobId"] == answers[1].json()["jobId"]


@pytest.mark.parametrize(
    ("key", "same"),
    [
        (b"k", b'"k"'),
        (b"b" * 128, b'"' + b"b" * 128 + b'"'),
        (b"c" * 255, b'"' + b"c" * 255 + b'"'),
        (b"trimmed", b" \ttrimmed  \t"),
        (b"a,b", b'"a,b"'),
        (bytes(range(0x23, 0x7F)), bytes(range(0x23, 0x7F))),
    ],
    ids=["1", "128", "255", "blanks around", "comma", "alphabet"],
)
def test_a_key_of_visible_ascii_characters_is_taken_bare_or_quoted(
    served: Consumer, key: bytes, same: bytes
) -> None:
    first, second = raw_submission(served, key), raw_submission(served, same)
    assert (first[0], second[0]) == (202, 202)
    assert first[1] == second[1]
    assert served.new_trouble() == []


@pytest.mark.parametrize(
    "key",
    [
        b"k" * 256,
        b"k" * 8_000,
        b'"' + b"k" * 256 + b'"',
        b"",
        b" \t ",
        "café".encode(),
        "café".encode("latin-1"),
        b"a\tb",
        b"a b",
        b'"a b"',
        b'"',
        b'""',
    ],
    ids=[
        "256",
        "8000",
        "256 quoted",
        "empty",
        "blanks",
        "utf-8",
        "latin-1",
        "tab",
        "blank within",
        "blank quoted",
        "quote",
        "empty quoted",
    ],
)
def test_any_other_key_is_refused_and_nothing_is_stored(served: Consumer, key: bytes) -> None:
    before = served.store.states().total()
    status, text, media_type = raw_submission(served, key)
    assert (status, media_type) == (400, "application/problem+json")
    assert REFUSED in text
    assert served.store.states().total() == before
    assert served.new_trouble() == []


def test_a_repeated_key_header_is_no_server_error(served: Consumer) -> None:
    status, _, _ = raw_submission(served, b"once", b"twice")
    assert status in (202, 400)
    assert served.new_trouble() == []


def raw_submission(served: Consumer, *keys: bytes) -> tuple[int, str, str | None]:
    """Submit `quick` with keys that no proper client would send; the job id, or the problem if there is one."""
    connection = http.client.HTTPConnection(urlsplit(served.server.url).netloc, timeout=30)
    try:
        connection.putrequest("POST", "/jobs/quick")
        for key in keys:
            connection.putheader("Idempotency-Key", key)
        connection.putheader("Content-Length", "0")
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, job_or_problem(answer.read().decode()), answer.headers["Content-Type"]
    finally:
        connection.close()


def job_or_problem(body: str) -> str:
    document: dict[str, str] = json.loads(body)
    return document.get("jobId") or document["type"]
