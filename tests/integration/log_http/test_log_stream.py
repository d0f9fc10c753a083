"""`GET /jobs/{id}/log`: the stream that can be resumed."""

import threading
from uuid import uuid4

import pytest

from flask_async_jobs import AsyncJobs, JobError, JobRepository, StorageUnavailable
from flask_async_jobs.api.pages import Pages
from flask_async_jobs.log import JobLog
from tests.integration.apps import TestJobs, assert_problem, serving
from tests.integration.counting import counted
from tests.integration.log_http.requests import LINES, STREAM, stream, write
from tests.integration.processes import running
from tests.integration.stores import claimed, new_job
from tests.integration.streams import blocks
from tests.waiting import wait_until


def test_a_resumed_stream_tells_the_lines_after_the_position_and_then_the_result(site, ended):
    for known in range(len(LINES) + 1):
        response = stream(site, ended, **{"Last-Event-ID": str(known)})
        *told, result = blocks(response.text)
        assert [(block.event, block.id, block.data["line"]) for block in told] == [
            ("progress", str(number), LINES[number - 1]) for number in range(known + 1, len(LINES) + 1)
        ]
        assert all(block.data["at"].endswith("Z") and block.data.keys() == {"line", "at"} for block in told)
        assert (result.event, result.id, result.retry) == ("result", None, "86400000")
        assert result.data == site.status(ended).json
    headers = response.headers
    assert headers["Content-Type"].startswith("text/event-stream")
    assert headers["Cache-Control"] == "no-store, no-transform"
    assert headers["X-Accel-Buffering"] == "no"
    assert "Content-Length" not in headers


def test_without_a_position_an_ended_job_tells_its_result_alone_and_every_time(site, ended):
    for _ in range(2):
        assert [block.event for block in blocks(stream(site, ended).text)] == ["result"]
        assert [block.event for block in blocks(stream(site, ended, **{"Last-Event-ID": " \t"}).text)] == ["result"]


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_the_result_of_a_job_that_did_not_complete_is_what_its_status_says(site, repository, claim, end):
    if end == "failed":
        repository.fail(claim.job_id, claim.execution_token, JobError.of("No", "Not today.", "no"))
    else:
        repository.cancel(claim.job_id)
    (result,) = blocks(stream(site, claim.job_id).text)
    assert result.data == site.status(str(claim.job_id)).get_json(force=True)
    assert (result.data["status"], result.data.get("code")) == (
        (422, "no") if end == "failed" else ("CANCELLED", None)
    )


def test_the_header_wins_over_the_query_unless_it_is_blank(site, ended):
    def ids(query, **headers):
        return [block.id for block in blocks(stream(site, ended, query, **headers).text)[:-1]]

    assert ids("?lastEventId=0") == [*"123456"]
    assert ids("?lastEventId=%20%094%09") == [*"56"]
    assert ids("?lastEventId=0", **{"Last-Event-ID": "5"}) == ["6"]
    assert ids("?lastEventId=5", **{"Last-Event-ID": " "}) == ["6"]
    assert ids("?lastEventId=0000000005") == ["6"]
    assert ids("?lastEventId=%20") == []


BAD = ["+1", "-1", "1.0", "0x2", "x", "1 2", "٣", "12345678901", "7", "1e0"]


@pytest.mark.parametrize("value", BAD)
def test_a_bad_position_is_400_without_a_body(site, ended, value):
    for query, headers in ((f"?lastEventId={value.replace('+', '%2B')}", {}), ("", {"Last-Event-ID": value})):
        if headers and not value.isascii():
            continue
        for method in ("GET", "HEAD"):
            response = site.ask(method, f"/jobs/{ended}/log{query}", headers={**STREAM, **headers})
            assert (response.status_code, response.data) == (400, b"")
            assert "Content-Type" not in response.headers
            assert response.headers["Cache-Control"] == "no-store"


def test_the_checks_come_in_the_order_404_400_429(engine, repository):
    job = repository.insert(new_job())
    with serving(TestJobs(), engine, AUTO_START=False, SSE_MAX_SUBSCRIBERS=1) as site:
        first = site.app.test_client().get(f"/jobs/{job.job_id}/log", headers=STREAM)
        assert_problem(stream(site, uuid4(), "?lastEventId=x"), 404, "job-not-found")
        assert stream(site, job.job_id, "?lastEventId=x").status_code == 400
        assert_problem(stream(site, job.job_id, "?lastEventId=0"), 429, "too-many-subscribers")
        assert_problem(site.get(f"/jobs/{job.job_id}/events"), 429, "too-many-subscribers")
        assert site.get(f"/jobs/{job.job_id}/log").status_code == 200  # a page takes no place
        head = site.ask("HEAD", f"/jobs/{job.job_id}/log", headers=STREAM)
        assert (head.status_code, head.mimetype, head.data) == (200, "text/event-stream", b"")
        first.close()
        second = site.app.test_client().get(f"/jobs/{job.job_id}/events")
        assert second.status_code == 200
        assert_problem(stream(site, job.job_id), 429, "too-many-subscribers")
        second.close()


def test_streams_of_all_jobs_are_bounded(engine, repository):
    first, second = repository.insert(new_job()), repository.insert(new_job())
    with serving(TestJobs(), engine, AUTO_START=False, SSE_MAX_STREAMS=1) as site:
        open_stream = site.app.test_client().get(f"/jobs/{first.job_id}/log", headers=STREAM)
        assert_problem(stream(site, second.job_id), 503, "too-many-streams")
        open_stream.close()


def test_a_job_of_another_owner_has_no_log(engine, log, repository):
    claim = claimed(repository, owner="ann")
    write(log, claim, "secret")
    with serving(TestJobs(owners=True), engine, AUTO_START=False) as site:
        for accept in (STREAM, {}):
            url = f"/jobs/{claim.job_id}/log?lastEventId=x&limit=x"
            assert_problem(site.get(url, headers={**accept, "X-Owner": "bob"}), 404, "job-not-found")
        assert site.get(f"/jobs/{claim.job_id}/log", headers={"X-Owner": "ann"}).json["lines"]


def test_a_live_stream_tells_each_line_from_now_on_and_then_the_result(engine):
    jobs = AsyncJobs()
    attached, more = threading.Event(), threading.Event()

    def handler(ctx):
        ctx.log("before")
        attached.wait(10)
        for number in range(20):
            ctx.log(f"line {number}")
        more.wait(10)
        ctx.log("last")
        return {"n": 1}

    jobs.register("chatty", handler)
    with running(jobs, engine, SSE_POLL_INTERVAL="PT1H") as app:
        submitted = jobs.submit("chatty")
        wait_until(lambda: jobs.get(submitted.job_id).log_lines == 1)
        response = app.test_client().get(f"/jobs/{submitted.job_id}/log", headers=STREAM)
        chunks = response.iter_encoded()
        assert next(chunks) == b": ok\n"
        attached.set()
        text = "".join(next(chunks).decode() for _ in range(20))
        more.set()
        text += b"".join(chunks).decode()
        response.close()
        result = app.test_client().get(f"/jobs/{submitted.job_id}/status").json
    told = blocks(text)
    assert [block.data["line"] for block in told[:-1]] == [*(f"line {number}" for number in range(20)), "last"]
    assert [block.id for block in told[:-1]] == [str(number) for number in range(2, 23)]
    assert told[-1].data == result
    assert result["status"] == "COMPLETED"


def test_a_silent_stream_asks_nothing_and_ends_with_the_retention(engine, repository):
    job = repository.insert(new_job())
    settings = {"SSE_HEARTBEAT": 0.05, "RETENTION": 0.5, "SSE_POLL_INTERVAL": "PT1H"}
    with serving(TestJobs(), engine, AUTO_START=False, **settings) as site, counted(engine) as statements:
        text = stream(site, job.job_id, "?lastEventId=0").text
    assert text.count(": ok\n") >= 5
    assert blocks(text) == []
    assert len(statements) == 2  # the look-up and the snapshot


def test_a_long_log_is_read_in_pages(engine, repository, log, monkeypatch):
    monkeypatch.setattr("flask_async_jobs.api.logs.PAGES", Pages(default=10, longest=10))
    claim = claimed(repository)
    for start in range(0, 95, 5):
        write(log, claim, *(str(number) for number in range(start, start + 5)))
    repository.complete(claim.job_id, claim.execution_token)
    settings = {"SSE_POLL_INTERVAL": "PT1H"}  # what is counted are pages, not looks at the job
    with serving(TestJobs(), engine, AUTO_START=False, **settings) as site, counted(engine) as statements:
        told = blocks(stream(site, claim.job_id, "?lastEventId=0").text)
    assert [block.data["line"] for block in told[:-1]] == [str(number) for number in range(95)]
    assert len(statements) == 2 + 10


def test_lines_that_somebody_removed_leave_a_gap_and_stop_nothing(site, engine, ended):
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM async_job_log WHERE line_number IN (2, 3, 6)")
    told = blocks(stream(site, ended, "?lastEventId=0").text)
    assert [block.id for block in told] == ["1", "4", "5", None]


def test_an_outage_ends_a_stream_without_making_up_its_end(site, ended, monkeypatch):
    def fails(*arguments):
        raise StorageUnavailable("away")

    monkeypatch.setattr(JobLog, "entries", fails)
    response = stream(site, ended, "?lastEventId=0")
    assert (response.status_code, response.text) == (200, ": ok\n")


@pytest.mark.parametrize("path", ["events", "log"])
def test_a_place_is_given_back_when_the_snapshot_cannot_be_read(engine, repository, monkeypatch, path):
    job = repository.insert(new_job())
    with serving(TestJobs(), engine, AUTO_START=False, SSE_MAX_SUBSCRIBERS=1) as site:
        find, calls = JobRepository.find, []

        def fails_the_second_time(*arguments):
            calls.append(arguments)
            if len(calls) == 2:
                raise StorageUnavailable("away")
            return find(*arguments)

        monkeypatch.setattr(JobRepository, "find", fails_the_second_time)
        assert_problem(site.get(f"/jobs/{job.job_id}/{path}", headers=STREAM), 503, "storage-unavailable")
        response = site.app.test_client().get(f"/jobs/{job.job_id}/{path}", headers=STREAM)
        assert response.status_code == 200
        response.close()
