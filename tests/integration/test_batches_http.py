"""Submitting batches over HTTP, on both databases: what is accepted, and what is wrong with the rest."""

import json
from collections.abc import Iterator
from decimal import Decimal

import pytest
from sqlalchemy import Engine

from flask_async_jobs.json_reader import JsonReader
from tests.integration.apps import (
    ListingSchema,
    Site,
    TestJobs,
    assert_problem,
    is_uuid,
    new_app,
    serving,
)
from tests.integration.batching import accepted, body, column, ended, stored
from tests.integration.counting import counted

NUMBERS = ["45.00", "100.00", "1200.00", "19.99", "9007199254740993", f"1{'0' * 400}", "-0.0", "1e400"]


@pytest.fixture
def site(engine: Engine) -> Iterator[Site]:
    """Accepts batches and runs nothing."""
    with serving(TestJobs(owners=True), engine) as site:
        yield site


@pytest.fixture
def busy(engine: Engine) -> Iterator[Site]:
    """Accepts batches and runs their items."""
    jobs = TestJobs()
    jobs.register("echo", lambda ctx, payload: payload["value"], payload_schema=ListingSchema)
    with serving(jobs, engine, run=True) as site:
        yield site


# Accepting


def test_a_batch_is_accepted_with_its_urls(site: Site) -> None:
    response = site.batch("quick", body("a", "b"), key="k")
    batch_id = response.json["batchId"]
    url = f"http://localhost/batches/{batch_id}"
    assert response.status_code == 202
    assert is_uuid(batch_id)
    assert response.json == {
        "batchId": batch_id,
        "status": "PENDING",
        "submittedAt": response.json["submittedAt"],
        "total": 2,
        "statusUrl": url,
        "itemsUrl": f"{url}/items",
        "eventsUrl": f"{url}/events",
    }
    assert response.json["submittedAt"].endswith("Z")
    assert response.headers["Location"] == url
    assert response.headers["Retry-After"] == "5"
    assert response.headers["Cache-Control"] == "no-store"
    assert site.get(response.json["statusUrl"]).status_code == 200
    assert site.get(response.json["itemsUrl"]).status_code == 200
    assert site.ask("HEAD", response.json["eventsUrl"]).status_code == 200


def test_the_urls_follow_prefix_and_root(engine: Engine) -> None:
    app = new_app(SERVER_NAME="api.example", APPLICATION_ROOT="/svc", PREFERRED_URL_SCHEME="https")
    with serving(TestJobs(), engine, app=app, BATCHES_URL_PREFIX="/many") as site, app.app_context():
        batch = site.jobs.submit_batch("quick", [{"itemId": "a"}])
        assert batch.status_url == f"https://api.example/svc/many/{batch.batch_id}"
        assert (batch.items_url, batch.events_url) == (f"{batch.status_url}/items", f"{batch.status_url}/events")


def test_a_replay_is_202_while_the_batch_is_active_and_200_when_it_has_ended(busy: Site, engine: Engine) -> None:
    first = accepted(busy, "remote", body("a"), key="k")
    again = busy.batch("remote", body("a"), key='"k"')
    assert (again.status_code, again.json["batchId"], again.headers["Retry-After"]) == (202, first, "5")
    busy.ask("DELETE", f"/batches/{first}")
    again = busy.batch("remote", body("a"), key="k")
    assert (again.status_code, again.json["batchId"], again.json["status"]) == (200, first, "COMPLETED")
    assert again.headers["Location"] == again.json["statusUrl"]
    assert "Retry-After" not in again.headers
    assert_problem(busy.batch("remote", body("b"), key="k"), 422, "idempotency-key-conflict")
    assert_problem(busy.batch("quick", body("a"), key="k"), 422, "idempotency-key-conflict")
    assert stored(engine) == (1, 1)


def test_payloads_are_stored_as_they_were_sent(site: Site, engine: Engine) -> None:
    sent = ['{ "value" :\t45.00}', '{"value":[1E5, -0, "\\u00e9\\/"]}', '{"rooms": 1, "value": {"b": 1, "a": [ ]}}']
    items = ", ".join(f'{{"payload":{payload} , "itemId": "{n}"}}' for n, payload in enumerate(sent))
    accepted(site, "listing", f' {{"items":[{items}]}}\r\n')
    assert column(engine, "payload") == sent


def test_numbers_go_from_the_request_through_the_handler_to_the_result_unchanged(busy: Site) -> None:
    items = ", ".join(f'{{"itemId": "{n}", "payload": {{"value": {text}}}}}' for n, text in enumerate(NUMBERS))
    batch_id = accepted(busy, "echo", f'{{"items": [{items}]}}')
    assert ended(busy, batch_id)["completed"] == len(NUMBERS)
    page = json.loads(busy.get(f"/batches/{batch_id}/items").text, parse_float=str, parse_int=str)
    results = [item["result"] for item in page["items"]]
    assert results[:-1] == NUMBERS[:-1]
    assert [Decimal(text) for text in results] == [Decimal(text) for text in NUMBERS]


def test_a_result_that_cannot_be_stored_fails_its_item_and_no_other(engine: Engine) -> None:
    jobs = TestJobs()
    jobs.register("odd", lambda ctx, payload: float(payload["value"]), payload_schema=ListingSchema)
    with serving(jobs, engine, run=True) as site:
        items = ", ".join(
            f'{{"itemId": "{n}", "payload": {{"value": "{n}"}}}}' for n in ("1.5", "nan", "-inf", "2")
        )
        batch_id = accepted(site, "odd", f'{{"items": [{items}]}}')
        assert [ended(site, batch_id)[name] for name in ("completed", "failed")] == [2, 2]
        told = site.get(f"/batches/{batch_id}/items").json["items"]
    assert [item["result"] for item in told] == [1.5, None, None, 2]
    assert [item["error"] and item["error"]["code"] for item in told] == [None, *["result-not-storable"] * 2, None]


def test_a_key_is_required_unless_the_setting_says_otherwise(site: Site, engine: Engine) -> None:
    assert_problem(site.batch("quick", body("a")), 400, "idempotency-key-required")
    assert_problem(site.batch("quick", body("a"), key="ü"), 400, "invalid-idempotency-key")
    assert stored(engine) == (0, 0)
    with serving(TestJobs(), engine, BATCH_REQUIRE_IDEMPOTENCY_KEY=False) as lenient:
        for _ in range(2):
            assert lenient.batch("quick", body("a")).status_code == 202
        assert_problem(lenient.batch("keyed", body("a")), 400, "idempotency-key-required")
    assert stored(engine) == (2, 2)


@pytest.mark.parametrize(
    ("text", "status", "slug"),
    [
        ("{", 400, "malformed-request"),
        ('{"items": [}', 400, "malformed-request"),
        ('{"items": [{"itemId": "a"},]}', 400, "malformed-request"),
        ('{"items": [{"itemId": "a" "payload": {}}]}', 400, "malformed-request"),
        ('{"items": [{"itemId": "a", "payload": NaN}]}', 400, "malformed-request"),
        ('{"items": [{"itemId": "a"}]} x', 400, "malformed-request"),
        ('{items: []}', 400, "malformed-request"),
        (f'{{"items": [{{"itemId": "a", "payload": {{"value": {"[" * 5000}}}}}]}}', 400, "malformed-request"),
        (b'{"items": [{"itemId": "\xff"}]}', 400, "malformed-request"),
        (body("a", payload='{"value": "\\u0000"}'), 400, "invalid-payload"),
        (body("a", payload=f'{{"value": {"[" * 150}{"]" * 150}}}'), 400, "malformed-request"),
        (body("a\0", payload='{"value": 1}'), 400, "invalid-payload"),
        (body("a\ud800", payload='{"value": 1}'), 400, "invalid-payload"),
        (None, 422, "invalid-payload"),
        ("[]", 422, "invalid-payload"),
        ('"x"', 422, "invalid-payload"),
        ("{}", 422, "invalid-payload"),
        ('{"items": []}', 422, "invalid-payload"),
        ('{"items": {}}', 422, "invalid-payload"),
        ('{"items": [], "items": null}', 422, "invalid-payload"),
        ('{"items": [{"itemId": "a", "payload": {"value": 1}}], "type": "x"}', 422, "invalid-payload"),
        (body(*map(str, range(101)), payload='{"value": 1}'), 422, "invalid-payload"),
        (body("a", "a", payload='{"value": 1}'), 422, "invalid-payload"),
        (body(" ", payload='{"value": 1}'), 422, "invalid-payload"),
        (body("x" * 129, payload='{"value": 1}'), 422, "invalid-payload"),
        (body("a", "b"), 422, "invalid-payload"),
        (body("a", payload=f'{{"value": "{"x" * 262_144}"}}'), 413, "payload-too-large"),
        ("x" * 26_700_000, 413, "payload-too-large"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_body_is_told_and_nothing_is_stored(
    site: Site, engine: Engine, text: str, status: int, slug: str
) -> None:
    with counted(engine) as statements:
        problem = assert_problem(site.batch("listing", text, key="k"), status, slug)
    assert statements == []
    assert bool(problem.get("errors")) is (status == 422)


def test_of_too_many_items_no_more_than_that_are_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    value = JsonReader.value
    monkeypatch.setattr(JsonReader, "value", lambda reader: read.append("") or value(reader))
    problem = assert_problem(
        site.batch("quick", f'{{"items": [{"0," * 5_000}0]}}', key="k"), 422, "invalid-payload"
    )
    assert problem["errors"] == {"items": ["Send 1 to 100 items."]}
    assert len(read) < 110


def test_errors_stand_at_their_place(site: Site) -> None:
    text = (
        '{"items": [{"itemId": "a", "payload": {"value": 1}}, {"itemId": "b", "payload": {"rooms": "two"}}, '
        '{"payload": {"value": 1}}]}'
    )
    problem = assert_problem(site.batch("listing", text, key="k"), 422, "invalid-payload")
    assert problem["errors"] == {
        "items": {
            "1": {
                "payload": {"value": ["Missing data for required field."], "rooms": ["Not a valid integer."]},
            },
            "2": {"itemId": ["Missing data for required field."]},
        }
    }
    taken = assert_problem(site.batch("quick", body("a", payload="[]"), key="k"), 422, "invalid-payload")
    assert list(taken["errors"]["items"]["0"]) == ["payload"]


def test_other_media_types_unknown_types_and_other_methods_are_problems(site: Site) -> None:
    assert_problem(
        site.batch("quick", body("a"), key="k", content_type="text/plain"), 415, "unsupported-media-type"
    )
    assert_problem(site.batch("nothing", body("a"), key="k"), 400, "unknown-type")
    assert_problem(site.batch("no type", body("a"), key="k"), 400, "invalid-type")
    batch_id = accepted(site)
    for method, path, allow in (
        ("GET", "/batches/quick", "OPTIONS, POST"),
        ("PUT", f"/batches/{batch_id}", "DELETE, GET, HEAD, OPTIONS"),
        ("POST", f"/batches/{batch_id}/items", "GET, HEAD, OPTIONS"),
    ):
        response = site.ask(method, path)
        assert_problem(response, 405, "method-not-allowed")
        assert response.headers["Allow"] == allow
        assert site.ask("OPTIONS", path).headers["Allow"] == allow
    for path in ("", f"/{batch_id}/nothing", f"/{batch_id}/items/1", "/unknown"):
        assert site.get(f"/batches{path}").status_code == 404
        assert_problem(site.get(f"/batches{path}"), 404)
    assert site.get(f"/batches/{batch_id}/").status_code == 200


def test_a_cap_and_a_full_process_are_429(engine: Engine) -> None:
    with serving(TestJobs(), engine, MAX_ACTIVE=2) as site:
        assert_problem(site.batch("quick", body("a", "b", "c"), key="k"), 429, "too-many-active")
    assert stored(engine) == (0, 0)
