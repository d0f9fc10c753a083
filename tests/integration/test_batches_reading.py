"""Following and cancelling batches over HTTP: summaries, pages, events, and who may see what."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from tests.integration.apps import (
    UNKNOWN_ID,
    Clock,
    Site,
    TestJobs,
    assert_problem,
    serving,
)
from tests.integration.batching import accepted, body
from tests.integration.counting import counted
from tests.integration.test_events import blocks
from tests.waiting import wait_until

COUNTS = ("total", "pending", "processing", "completed", "failed", "cancelled")


@pytest.fixture
def site(engine: Engine) -> Iterator[Site]:
    """Accepts batches and runs nothing."""
    with serving(TestJobs(owners=True), engine) as site:
        yield site


@pytest.fixture
def busy(engine: Engine) -> Iterator[Site]:
    """Accepts batches and runs their items."""
    with serving(TestJobs(), engine, run=True) as site:
        yield site


# Reading


def test_a_summary_counts_the_items(busy: Site) -> None:
    batch_id = accepted(busy, "remote", body("a", "b", "c"))
    first, second, third = wait_until(lambda: _contexts(busy, batch_id, 3))
    summary = busy.get(f"/batches/{batch_id}")
    assert summary.headers["Retry-After"] == "5"
    assert summary.json == {
        "batchId": batch_id,
        "jobType": "remote",
        "status": "PROCESSING",
        "submittedAt": summary.json["submittedAt"],
        "completedAt": None,
        **dict(zip(COUNTS, (3, 0, 3, 0, 0, 0), strict=True)),
        "itemsUrl": f"http://localhost/batches/{batch_id}/items",
    }
    with busy.app.app_context():
        busy.jobs.reporter(first.job_id, first.execution_token).complete({"score": 1})
        busy.jobs.reporter(second.job_id, second.execution_token).fail("No", "It broke.", "broken")
    busy.ask("DELETE", f"/jobs/{third.job_id}")
    summary = busy.get(f"/batches/{batch_id}")
    assert [summary.json[name] for name in COUNTS] == [3, 0, 0, 1, 1, 1]
    assert (summary.json["status"], summary.json["completedAt"] is None) == ("COMPLETED", False)
    assert "Retry-After" not in summary.headers
    items = busy.get(f"/batches/{batch_id}/items").json["items"]
    assert [(item["status"], item["result"]) for item in items] == [
        ("COMPLETED", {"score": 1}),
        ("FAILED", None),
        ("CANCELLED", None),
    ]
    assert items[1]["error"] == {"title": "No", "detail": "It broke.", "code": "broken"}
    assert items[0]["error"] is None
    assert busy.get(f"/jobs/{items[0]['jobId']}").json["batchId"] == batch_id


def test_the_instants_of_a_batch_follow_the_clock(engine: Engine) -> None:
    clock = Clock()
    with serving(TestJobs(), engine, init={"clock": clock}) as site:
        batch_id = accepted(site, text=body("a", "b"))
        first, second = site.get(f"/batches/{batch_id}/items").json["items"]
        for seconds, item in ((1.5, second), (1, first)):
            clock.tick(seconds)
            site.ask("DELETE", f"/jobs/{item['jobId']}")
        summary = site.get(f"/batches/{batch_id}").json
        ended = site.get(f"/batches/{batch_id}/items").json["items"]
    assert (summary["submittedAt"], summary["completedAt"]) == (
        "2026-06-03T22:00:00Z",
        "2026-06-03T22:00:02.500000Z",
    )
    assert [item["completedAt"] for item in ended] == ["2026-06-03T22:00:02.500000Z", "2026-06-03T22:00:01.500000Z"]
    assert {item["createdAt"] for item in ended} == {summary["submittedAt"]}


def _contexts(site: Site, batch_id: str, number: int):
    assert isinstance(site.jobs, TestJobs)
    ids = [item["jobId"] for item in site.get(f"/batches/{batch_id}/items").json["items"]]
    contexts = [site.jobs.contexts.get(job_id) for job_id in ids]
    return contexts if all(contexts) and len(contexts) == number else None


def test_pages_give_every_item_once_in_accepted_order(site: Site) -> None:
    ids = [f"item-{n}" for n in (5, 3, 9, 1, 7)]
    url = f"/batches/{accepted(site, text=body(*ids))}/items"
    page = site.get(url).json
    assert ([item["itemId"] for item in page["items"]], page["nextAfter"]) == (ids, None)
    assert set(page["items"][0]) == {
        *("itemId", "jobId", "status", "createdAt", "startedAt", "lastUpdatedAt", "completedAt", "result", "error"),
    }
    seen, after = [], 0
    while after is not None:
        page = site.get(f"{url}?after={after}&limit=2").json
        seen += [item["itemId"] for item in page["items"]]
        after = page["nextAfter"]
    assert seen == ids
    assert site.get(f"{url}?after=5").json == {"batchId": url.split("/")[2], "items": [], "nextAfter": None}
    assert site.get(f"{url}?after=2147483647&limit=100").status_code == 200


def test_a_page_has_25_items_by_default_and_100_at_most(site: Site) -> None:
    url = f"/batches/{accepted(site, text=body(*(f'i{n}' for n in range(100))))}/items"
    page = site.get(url).json
    assert (len(page["items"]), page["nextAfter"]) == (25, 25)
    assert len(site.get(f"{url}?limit=100").json["items"]) == 100
    assert site.get(f"{url}?after=75").json["nextAfter"] is None


@pytest.mark.parametrize(
    "query",
    [
        *("after=-1", "after=x", "after=", "after=2147483648", "after=1.5", "after=%D9%A1"),
        *("limit=0", "limit=101", "limit=-1", "limit=x", "limit=", "limit=1e1", "limit=99999999999"),
    ],
)
def test_a_page_that_makes_no_sense_is_422(site: Site, query: str) -> None:
    response = site.get(f"/batches/{accepted(site)}/items?{query}")
    problem = assert_problem(response, 422, "invalid-parameters")
    assert list(problem["errors"]) == [query.split("=")[0]]
    assert_problem(site.get(f"/batches/{UNKNOWN_ID}/items?{query}"), 404, "batch-not-found")


def test_a_summary_and_a_page_are_one_statement_each(site: Site, engine: Engine) -> None:
    batch_id = accepted(site)
    for path in ("", "/items"):
        with counted(engine) as statements:
            assert site.get(f"/batches/{batch_id}{path}").status_code == 200
        assert len(statements) == 1
        assert "payload" not in statements[0]


ROUTES = [
    ("GET", ""), ("GET", "/items"), ("GET", "/events"), ("DELETE", ""), ("GET", "/items?limit=0"),
]  # fmt: skip


def test_another_owners_batch_is_as_unknown_as_any(site: Site) -> None:
    batch_id = accepted(site, x_owner="ann")
    for method, path in ROUTES:
        answers = [
            site.ask(method, f"/batches/{each}{path}", headers={"X-Owner": "bob"})
            for each in (batch_id, UNKNOWN_ID)
        ]
        texts = [
            answer.text.replace(each, "") for answer, each in zip(answers, (batch_id, UNKNOWN_ID), strict=True)
        ]
        assert texts[0] == texts[1]
        assert_problem(answers[0], 404, "batch-not-found")
    assert [site.get(f"/batches/{batch_id}", headers={"X-Owner": "ann"}).json[name] for name in COUNTS][:2] == [
        3,
        3,
    ]


@pytest.mark.parametrize("spelled", [lambda id: id.replace("-", ""), lambda id: f"{{{id}}}", lambda id: id[:-1]])
def test_an_id_in_another_form_is_unknown(site: Site, spelled) -> None:
    batch_id = accepted(site)
    assert site.get(f"/batches/{batch_id.upper()}").status_code == 200
    assert site.get(f"/batches/{spelled(batch_id)}").status_code == 404


def test_a_job_is_no_batch_and_a_batch_no_job(site: Site) -> None:
    assert_problem(site.get(f"/batches/{site.submit()}"), 404, "batch-not-found")
    assert_problem(site.get(f"/jobs/{accepted(site)}"), 404, "job-not-found")


# Cancelling


def test_a_batch_is_cancelled_once(busy: Site) -> None:
    batch_id = accepted(busy, "remote", body("a", "b"))
    response = busy.ask("DELETE", f"/batches/{batch_id}")
    assert (response.status_code, response.json["status"], response.json["cancelled"]) == (202, "COMPLETED", 2)
    assert "Retry-After" not in response.headers
    problem = assert_problem(busy.ask("DELETE", f"/batches/{batch_id}"), 409, "already-terminal")
    assert (problem["batchId"], problem["batchStatus"]) == (batch_id, "COMPLETED")
    assert_problem(busy.ask("DELETE", f"/batches/{UNKNOWN_ID}"), 404, "batch-not-found")


# Events


def test_a_stream_tells_the_counts_until_the_end(busy: Site) -> None:
    batch_id = accepted(busy, "remote", body("a", "b"))
    contexts = wait_until(lambda: _contexts(busy, batch_id, 2))
    response = busy.app.test_client().get(f"/batches/{batch_id}/events")
    chunks = response.iter_encoded()
    seen = [next(chunks).decode(), next(chunks).decode()]
    assert seen[0] == ": ok\n"
    assert seen[1].startswith("retry: ")
    with busy.app.app_context():
        for context in contexts:
            busy.jobs.reporter(context.job_id, context.execution_token).complete()
            seen.append(next(chunks).decode())
    assert list(chunks) == []
    response.close()
    told = blocks("".join(seen))
    assert [event for event, _, _ in told] == ["progress", "progress", "complete"]
    assert [id for _, id, _ in told] == [4, 5, 6]
    assert [data["completed"] for _, _, data in told] == [0, 1, 2]
    assert set(told[0][2]) == {"batchId", "status", *COUNTS}
    assert set(told[2][2]) == {"batchId", "status", *COUNTS, "completedAt"}
    assert response.headers["Content-Type"].startswith("text/event-stream")
    again = busy.get(f"/batches/{batch_id}/events", headers={"Last-Event-ID": " 6 "})
    assert (again.status_code, again.data) == (204, b"")
    for other in ("", "5", "x"):
        snapshot = busy.get(f"/batches/{batch_id}/events", headers={"Last-Event-ID": other})
        assert blocks(snapshot.text) == [told[2]]


def test_streams_of_batches_and_jobs_share_the_places_and_the_looks(engine: Engine) -> None:
    limits = {"SSE_MAX_SUBSCRIBERS": 1, "SSE_MAX_STREAMS": 2, "SSE_POLL_INTERVAL": "PT1H"}
    with serving(TestJobs(), engine, **limits) as site:
        client = site.app.test_client()
        first, second, job = accepted(site), accepted(site), site.submit()
        streams = [client.get(f"/batches/{first}/events"), client.get(f"/jobs/{job}/events")]
        assert_problem(client.get(f"/batches/{first}/events"), 429, "too-many-subscribers")
        assert_problem(client.get(f"/batches/{second}/events"), 503, "too-many-streams")
        for known in ({}, {"Last-Event-ID": "3"}):  # the state, but not the end
            assert client.head(f"/batches/{first}/events", headers=known).status_code == 200
        with counted(engine) as statements:
            assert site.app.extensions["async_jobs"].watcher.look_once() == 2
        assert len(statements) == len(statements.reads) == 2
        for stream in streams:
            stream.close()
        with counted(engine) as statements:
            assert site.app.extensions["async_jobs"].watcher.look_once() == 0
        assert statements == []


def test_a_silent_batch_is_heard_by_heartbeats_and_a_removed_one_ends(engine: Engine) -> None:
    with serving(TestJobs(), engine, SSE_HEARTBEAT=0.05, RETENTION=0.4, SSE_POLL_INTERVAL="PT1H") as site:
        batch_id = accepted(site)
        with counted(engine) as statements:
            text = site.get(f"/batches/{batch_id}/events").text
        assert text.count(": ok\n") >= 4
        assert len(blocks(text)) == 1
        assert len(statements) == 2  # the look-up and the snapshot
        assert_problem(site.get(f"/batches/{UNKNOWN_ID}/events"), 404, "batch-not-found")
