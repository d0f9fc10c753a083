"""What a client of `/jobs` relies on, on both databases: bodies, headers, and which job answers a submission."""

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.integration.apps import UNKNOWN_ID, Site, TestJobs, assert_problem, is_uuid, serving

EQUAL = [
    ('{"value": 45}', '{"value": 45.0}'),
    ('{"value": 45.00}', '{"value": 4.5e1}'),
    ('{"value": {"a": 1, "b": [0, -0.0]}}', '{ "value":{"b":[0,0],"a":1.0}}'),
    ('{"value": 1, "rooms": 2}', '{"rooms": 2, "value": 1}'),
    ('{"value": "\\u00e9"}', '{"value": "é"}'),
    ('{"value": 9007199254740993}', '{"value": 9007199254740993.0}'),
]
SOON = {"FRESHNESS_ENABLED": True, "FRESHNESS_DEFAULT_WINDOW": "PT10M"}


@pytest.fixture
def site(engine: Engine) -> Iterator[Site]:
    """Accepts jobs and runs none."""
    with serving(TestJobs(owners=True), engine) as site:
        yield site


@pytest.fixture
def busy(engine: Engine) -> Iterator[Site]:
    """Accepts jobs and runs them."""
    with serving(TestJobs(), engine, run=True) as site:
        yield site


@pytest.fixture
def fresh(engine: Engine) -> Iterator[Site]:
    """Runs jobs, and answers with one that completed within ten minutes."""
    with serving(TestJobs(), engine, run=True, **SOON) as site:
        yield site


def disposition(site: Site, *args: Any, **options: Any) -> str:
    response = site.post(*args, **options)
    assert response.status_code == 202, response.text
    return str(response.json["disposition"])


# POST /jobs/{type}


def test_a_submission_is_accepted_with_the_urls_of_its_job(site: Site) -> None:
    response = site.post("quick")
    job_id = response.json["jobId"]
    url = f"http://localhost/jobs/{job_id}"
    assert response.status_code == 202
    assert is_uuid(job_id)
    assert response.json == {
        "jobId": job_id,
        "status": "PENDING",
        "disposition": "created",
        "statusUrl": f"{url}/status",
        "eventsUrl": f"{url}/events",
        "logUrl": f"{url}/log",
        "operationUrl": f"{url}/operation",
        "cancelUrl": url,
    }
    assert response.content_type == "application/json"
    assert response.headers["Location"] == f"{url}/status"
    assert response.headers["Operation-Location"] == f"{url}/operation"
    assert response.headers["Retry-After"] == "5"
    assert response.headers["Cache-Control"] == "no-store"


def test_every_url_of_an_answer_can_be_followed_as_it_is(site: Site) -> None:
    accepted = site.post("quick").json
    for name in ("statusUrl", "operationUrl", "cancelUrl"):
        assert site.get(accepted[name]).status_code == 200


def test_without_freshness_and_single_flight_every_submission_is_a_job(busy: Site, engine: Engine) -> None:
    busy.run("quick")
    assert [disposition(busy, "quick") for _ in range(2)] == ["created", "created"]
    assert busy.count(engine) == 3


def test_a_key_replays_its_job_also_when_it_has_ended(busy: Site, engine: Engine) -> None:
    job_id = busy.submit("refused", key="k-1")
    busy.ended(job_id)
    response = busy.post("refused", key="k-1")
    assert response.status_code == 202
    assert [response.json[name] for name in ("jobId", "disposition", "status")] == [job_id, "replayed", "FAILED"]
    assert "Retry-After" not in response.headers
    assert busy.count(engine) == 1


def test_a_key_of_another_type_or_payload_is_a_conflict(site: Site, engine: Engine) -> None:
    site.submit("listing", '{"value": [1, 2]}', key="k")
    for type, body in (("quick", None), ("listing", '{"value": [2, 1]}'), ("listing", '{"value": [1, "2"]}')):
        problem = assert_problem(site.post(type, body, key="k"), 422, "idempotency-key-conflict")
        assert problem["title"] == "Idempotency-Key conflict"
    assert site.count(engine) == 1


def test_payloads_that_are_equal_as_json_values_are_the_same_work(site: Site) -> None:
    for number, (first, second) in enumerate(EQUAL):
        site.submit("listing", first, key=f"k{number}")
        assert disposition(site, "listing", second.encode(), key=f"k{number}") == "replayed"


def test_different_numbers_are_different_work(site: Site) -> None:
    site.submit("listing", '{"value": 9007199254740993}', key="k")
    assert_problem(site.post("listing", '{"value": 9007199254740992}', key="k"), 422, "idempotency-key-conflict")


def test_a_key_and_its_quoted_form_are_the_same_key(site: Site) -> None:
    for key in ("k", "k" * 255, "!~", "a,b", 'a"b\\c', "{x}"):
        quoted = key.replace("\\", "\\\\").replace('"', '\\"')
        job_id = site.submit(key=key)
        assert site.submit(key=f'"{quoted}"') == job_id
        assert site.submit(key=f"  {key} ") == job_id


def test_any_other_key_is_refused_and_nothing_is_stored(site: Site, engine: Engine) -> None:
    for key in ("", " ", "a b", "k" * 256, "k" * 8000, "café", "a\tb", '"', '"a', '""', '"a" b'):
        assert_problem(site.post("quick", key=key), 400, "invalid-idempotency-key")
    assert site.count(engine) == 0


def test_a_type_may_require_a_key(site: Site) -> None:
    assert_problem(site.post("keyed"), 400, "idempotency-key-required")
    assert disposition(site, "keyed", key="k") == "created"


def test_a_recent_completion_answers_while_freshness_is_on(fresh: Site, engine: Engine) -> None:
    job_id = fresh.run("quick").json["jobId"]
    response = fresh.post("quick")
    assert [response.json[name] for name in ("jobId", "disposition", "status")] == [job_id, "fresh", "COMPLETED"]
    assert "Retry-After" not in response.headers
    assert fresh.count(engine) == 1


def test_only_a_completed_job_is_fresh(fresh: Site) -> None:
    fresh.run("refused")
    fresh.ask("DELETE", f"/jobs/{fresh.submit('remote')}")
    assert [disposition(fresh, "refused"), disposition(fresh, "remote")] == ["created", "created"]


def test_no_cache_asks_for_a_new_run(fresh: Site) -> None:
    fresh.run("quick")
    for value in ("no-cache", "No-Cache", "max-age=0, NO-CACHE", "no-cache ,no-transform", "a,no-cache,b"):
        assert disposition(fresh, "quick", cache_control=value) == "created"


def test_no_other_directive_does(fresh: Site) -> None:
    fresh.run("quick")
    for value in ("max-age=0", "no-store", "x-no-cache", "no-cached", 'private="no-cache"'):
        assert disposition(fresh, "quick", cache_control=value) == "fresh"


def test_no_cache_skips_neither_the_key_nor_single_flight(fresh: Site) -> None:
    fresh.submit("single", key="k")
    assert disposition(fresh, "single", key="k", cache_control="no-cache") == "replayed"
    assert disposition(fresh, "single", cache_control="no-cache") == "coalesced"


def test_single_flight_joins_the_active_job_and_no_other(busy: Site, engine: Engine) -> None:
    job_id = busy.submit("single")
    response = busy.post("single")
    assert (response.json["jobId"], response.json["disposition"]) == (job_id, "coalesced")
    assert busy.count(engine) == 1
    busy.context(job_id)
    assert disposition(busy, "single") == "coalesced"
    busy.ask("DELETE", f"/jobs/{job_id}")
    assert disposition(busy, "single") == "created"


def test_a_key_is_bound_only_by_the_submission_that_creates_a_job(fresh: Site) -> None:
    fresh.run("quick")
    assert disposition(fresh, "quick", key="k") == "fresh"
    assert disposition(fresh, "other", key="k") == "created"
    fresh.submit("single")
    assert disposition(fresh, "single", key="k2") == "coalesced"
    assert disposition(fresh, "other", key="k2", cache_control="no-cache") == "created"


def test_an_unknown_type_is_named(site: Site) -> None:
    assert "'nothing'" in assert_problem(site.post("nothing"), 400, "unknown-type")["detail"]


def test_a_malformed_type_is_named(site: Site) -> None:
    for type in ("a b", "größe", "x" * 65, UNKNOWN_ID, "a:b", "quick,other"):
        assert type in assert_problem(site.post(type), 400, "invalid-type")["detail"]


# The payload


def test_a_type_without_a_schema_takes_no_payload(site: Site, engine: Engine) -> None:
    for nothing in (None, "", " \r\n", "{}", " { } "):
        assert disposition(site, "quick", nothing) == "created"
    for something in ("null", "[]", "0", "false", '""', '{"a": 1}', '{"": null}'):
        problem = assert_problem(site.post("quick", something), 400, "invalid-payload")
        assert "'quick'" in problem["detail"]
    assert site.count(engine) == 5


def test_a_payload_that_does_not_fit_is_refused_field_by_field(site: Site, engine: Engine) -> None:
    problem = assert_problem(site.post("listing", '{"rooms": "two", "x": 1}'), 422, "invalid-payload")
    assert problem["errors"].keys() == {"value", "rooms", "x"}
    for other in ("[]", "1", "null", None):
        assert assert_problem(site.post("listing", other), 422, "invalid-payload")["errors"]
    assert site.count(engine) == 0


def test_text_that_a_database_cannot_hold_is_refused(site: Site, engine: Engine) -> None:
    for text in ('"\\u0000"', '"\\ud800"', '"\\udc00\\ud800"', '{"\\u0000": 1}', '[["\\udfff"]]'):
        assert_problem(site.post("listing", f'{{"value": {text}}}'), 400)
    assert site.count(engine) == 0
    assert disposition(site, "listing", '{"value": "\\ud83d\\ude00"}') == "created"


def test_what_is_not_json_is_malformed(site: Site, engine: Engine) -> None:
    bad = [b"{", b'{"value": 1,}', b"{'value': 1}", b'{"value": NaN}', b'{"value": -Infinity}', b'{"value": 01}']
    bad += [b'{"value": "\xff"}', b'{"value": "\n"}', b"{}{}", b'{"value": %s}' % (b"[" * 10_000 + b"]" * 10_000)]
    bad += ['{"value": 1}'.encode("utf-16"), b"{} x"]
    for body in bad:
        for type in ("listing", "quick"):
            assert_problem(site.post(type, body), 400, "malformed-request")
    assert site.count(engine) == 0


def test_a_body_that_is_not_declared_as_json_is_refused(site: Site, engine: Engine) -> None:
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        for type in ("listing", "quick"):
            response = site.post(type, "{}", content_type=media_type)
            assert_problem(response, 415, "unsupported-media-type")
    assert site.count(engine) == 0
    assert disposition(site, "quick", "{}", content_type="application/json; charset=utf-8") == "created"
    assert disposition(site, "quick", "", content_type="text/plain") == "created"


def test_a_payload_over_the_limit_is_too_large(engine: Engine) -> None:
    with serving(TestJobs(), engine, PAYLOAD_MAX_BYTES=40) as site:
        assert disposition(site, "listing", '{"value": "%s"}' % ("x" * 27)) == "created"
        assert_problem(site.post("listing", '{"value": "%s"}' % ("x" * 28)), 413, "payload-too-large")
        assert_problem(site.post("listing", ('{"value": "%s"}' % ("é" * 14)).encode()), 413, "payload-too-large")
        assert site.count(engine) == 1
