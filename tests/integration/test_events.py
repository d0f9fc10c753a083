"""Following jobs: the watcher, its places, and the stream that is made of them."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from sqlalchemy import event

from flask_async_jobs import AsyncJobs, JobRepository, JobStatus
from flask_async_jobs.batch_repository import BatchRepository
from flask_async_jobs.watcher import TooManyStreams, TooManySubscribers, Watcher
from tests.integration.counting import counted
from tests.integration.processes import application, running
from tests.integration.stores import LEASE, claimed, edit, new_job
from tests.waiting import wait_until

SECOND = LEASE / 30
MEMBERS = (
    *(
        "job_id",
        "type",
        "status",
        "created_at",
        "last_updated_at",
        "started_at",
        "completed_at",
        "percent_complete",
    ),
    *("attempt", "effect_started", "error", "batch_id", "revision", "result", "result_url"),
)


@pytest.fixture
def jobs():
    jobs = AsyncJobs()
    jobs.register("a", lambda: None)
    return jobs


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


@pytest.fixture
def watcher(repository):
    watcher = Watcher(
        repository, BatchRepository(repository), interval=SECOND * 3600, most=5, most_of_a_job=2, pending=3
    )
    repository.changed = watcher.changed
    yield watcher
    watcher.stop()


def blocks(text):
    """Return the events of a stream as (event, id, data); comments left out."""
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines["event"], int(lines["id"]), json.loads(lines["data"])))
    return found


def test_all_subscribers_are_served_by_one_query(watcher, repository, engine):
    followed = [repository.insert(new_job()) for _ in range(3)]
    repository.changed = lambda: None
    subscriptions = [watcher.subscribe(job.job_id) for job in followed]
    for subscription, job in zip(subscriptions, followed, strict=True):
        subscription.begin(job)
    repository.cancel(followed[1].job_id)
    with counted(engine) as statements:
        assert watcher.look_once() == 3
    assert len(statements) == 1
    assert subscriptions[1].next(0).status is JobStatus.CANCELLED
    assert subscriptions[0].next(0) is None


def test_two_hundred_streams_and_as_many_waiters_cost_one_query_and_one_connection(jobs, engine, repository):
    followed = [repository.insert(new_job()).job_id for _ in range(4)]
    limits = {"SSE_MAX_STREAMS": 400, "SSE_MAX_SUBSCRIBERS": 400, "SSE_POLL_INTERVAL": "PT1H"}
    app = application(jobs, engine, AUTO_START=False, **limits)
    client, watcher = app.test_client(), app.extensions["async_jobs"].watcher
    streams = [client.get(f"/jobs/{followed[n % 4]}/events") for n in range(200)]

    def wait(number):
        with app.app_context():
            return jobs.wait(followed[number % 4], 30)

    with ThreadPoolExecutor(200) as waiters:
        ends = [waiters.submit(wait, number) for number in range(200)]
        wait_until(lambda: sum(len(each) for each in watcher._followed.values()) == 400)
        wait_until(lambda: engine.pool.checkedout() == 0)
        held = []
        event.listen(engine, "before_cursor_execute", lambda *_: held.append(engine.pool.checkedout()))
        with counted(engine) as statements:
            assert watcher.look_once() == 4
        assert (len(statements), held) == (1, [1])
        for job_id in followed:
            repository.cancel(job_id)
        watcher.look_once()
        assert {end.result().status for end in ends} == {JobStatus.CANCELLED}
    assert {blocks(stream.text)[-1][0] for stream in streams} == {"cancelled"}


def test_nobody_follows_and_nothing_is_asked(watcher, engine):
    with counted(engine) as statements:
        assert watcher.look_once() == 0
    assert statements == []


def test_places_are_bounded_and_come_free(watcher):
    job_id = uuid4()
    first, _ = watcher.subscribe(job_id, stream=True), watcher.subscribe(job_id, stream=True)
    with pytest.raises(TooManySubscribers):
        watcher.subscribe(job_id, stream=True)
    others = [watcher.subscribe(uuid4()) for _ in range(3)]
    with pytest.raises(TooManyStreams):
        watcher.subscribe(uuid4())
    assert watcher.subscribe(uuid4(), capped=False)
    for each in (first, first, *others):
        each.close()
    assert watcher.subscribe(job_id, stream=True)


def test_one_who_waits_takes_no_place_of_a_jobs_streams(watcher):
    job_id = uuid4()
    for stream in (False, False, True, True):
        watcher.subscribe(job_id, stream=stream)
    with pytest.raises(TooManySubscribers):
        watcher.subscribe(job_id, stream=True)


def test_a_change_in_this_process_is_told_at_once(watcher, repository):
    claim = claimed(repository)
    subscription = watcher.subscribe(claim.job_id)
    subscription.begin(repository.find(claim.job_id))
    repository.progress(claim.job_id, claim.execution_token, 40, LEASE)
    assert subscription.next(5).percent_complete == 40


def test_a_change_by_hand_is_seen_even_if_it_changes_no_revision(watcher, repository, engine):
    job = repository.insert(new_job())
    subscription = watcher.subscribe(job.job_id)
    subscription.begin(job)
    edit(engine, job.job_id, percent_complete=5)
    watcher.look_once()
    assert subscription.next(0).percent_complete == 5


def test_one_who_does_not_read_loses_its_place(watcher, repository, engine):
    repository.changed = lambda: None
    claim = claimed(repository)
    subscription = watcher.subscribe(claim.job_id)
    subscription.begin(repository.find(claim.job_id))
    for percent in range(1, 5):
        repository.progress(claim.job_id, claim.execution_token, percent, LEASE)
        watcher.look_once()
    assert subscription.is_over
    assert subscription.next(0) is None


def test_a_row_that_is_gone_ends_its_subscriptions(watcher):
    subscription = watcher.subscribe(uuid4())
    watcher.look_once()
    assert subscription.is_over


def test_a_stream_tells_each_state_and_then_ends(jobs, engine):
    step, gate = threading.Event(), threading.Event()

    def handler(ctx):
        step.wait(10)
        ctx.progress(50)
        gate.wait(10)

    jobs.register("steps", handler)
    with running(jobs, engine, SSE_POLL_INTERVAL=0.1) as app:
        submitted = jobs.submit("steps")
        wait_until(lambda: jobs.get(submitted.job_id).status is JobStatus.PROCESSING)
        response = app.test_client().get(f"/jobs/{submitted.job_id}/events")
        chunks = response.iter_encoded()
        seen = [next(chunks).decode(), next(chunks).decode()]
        assert seen[0] == ": ok\n"
        assert seen[1].startswith("retry: ")
        step.set()
        seen.append(next(chunks).decode())
        gate.set()
        seen.extend(chunk.decode() for chunk in chunks)
        response.close()
    told = blocks("".join(seen))
    assert [event for event, _, _ in told] == ["status", "progress", "complete"]
    assert [id for _, id, _ in told] == sorted(id for _, id, _ in told)
    assert set(told[0][2]) == set(told[1][2]) == {"jobId", "status", "percentComplete", "lastUpdatedAt"}
    assert set(told[2][2]) == {"jobId", "lastUpdatedAt"}
    headers = response.headers
    assert headers["Content-Type"].startswith("text/event-stream")
    assert headers["Cache-Control"] == "no-store, no-transform"
    assert headers["X-Accel-Buffering"] == "no"
    assert "Content-Length" not in headers


@pytest.mark.parametrize("how", ["complete", "failed", "cancelled"])
def test_one_who_has_seen_the_end_is_not_told_again_and_costs_one_query(jobs, engine, repository, how):
    claim = claimed(repository)
    match how:
        case "complete":
            repository.complete(claim.job_id, claim.execution_token)
        case "failed":
            from flask_async_jobs import JobError

            repository.fail(claim.job_id, claim.execution_token, JobError.of("No", None, "no"))
        case "cancelled":
            repository.cancel(claim.job_id)
    client = application(jobs, engine, AUTO_START=False).test_client()
    (told,) = blocks(client.get(f"/jobs/{claim.job_id}/events").text)
    assert told[0] == how
    if how == "failed":
        assert (told[2]["title"], told[2]["code"]) == ("No", "no")
    for other in ("", " ", "0", "-1", "x" * 7000, "1e9"):
        response = client.get(f"/jobs/{claim.job_id}/events", headers={"Last-Event-ID": other})
        assert blocks(response.text) == [told]
    with counted(engine) as statements:
        again = client.get(f"/jobs/{claim.job_id}/events", headers={"Last-Event-ID": str(told[1])})
    assert len(statements) == 1
    assert (again.status_code, again.data) == (204, b"")


def test_streams_beyond_the_caps_are_refused_and_places_come_free(jobs, engine, repository):
    job = repository.insert(new_job())
    client = application(jobs, engine, AUTO_START=False, SSE_MAX_SUBSCRIBERS=1, SSE_MAX_STREAMS=2).test_client()
    url = f"/jobs/{job.job_id}/events"
    first = client.get(url)
    refused = client.get(url)
    assert (refused.status_code, refused.json["type"].rsplit(":", 1)[1]) == (429, "too-many-subscribers")
    second = client.get(f"/jobs/{repository.insert(new_job()).job_id}/events")
    refused = client.get(f"/jobs/{repository.insert(new_job()).job_id}/events")
    assert (refused.status_code, refused.json["type"].rsplit(":", 1)[1]) == (503, "too-many-streams")
    assert refused.headers["Retry-After"]
    for known in ({}, {"Last-Event-ID": "1"}):  # the state, but not the end
        assert client.head(url, headers=known).status_code == 200
    first.close()  # its generator was never started
    third = client.get(url)
    assert third.status_code == 200
    for response in (second, third):
        response.close()


def test_a_silent_job_is_heard_by_its_heartbeats_and_they_ask_nothing(jobs, engine, repository):
    job = repository.insert(new_job())
    app = application(jobs, engine, AUTO_START=False, SSE_HEARTBEAT=0.05, RETENTION=0.5, SSE_POLL_INTERVAL="PT1H")
    with counted(engine) as statements:
        text = app.test_client().get(f"/jobs/{job.job_id}/events").text
    assert text.count(": ok\n") >= 5
    assert len(blocks(text)) == 1
    assert len(statements) == 2  # the look-up and the snapshot


def test_an_unknown_job_is_404_before_any_byte_of_a_stream(jobs, engine):
    response = application(jobs, engine, AUTO_START=False).test_client().get(f"/jobs/{uuid4()}/events")
    assert (response.status_code, response.mimetype) == (404, "application/problem+json")


def test_python_waits_and_watches_too(jobs, engine):
    gate = threading.Event()
    jobs.register("gate", lambda: gate.wait(10) and {"n": 1})
    with running(jobs, engine):
        submitted = jobs.submit("gate")
        assert jobs.wait(submitted.job_id, 0.05).status in (JobStatus.PENDING, JobStatus.PROCESSING)
        threading.Timer(0.2, gate.set).start()
        assert jobs.wait(submitted.job_id, "PT10S").result == {"n": 1}
        (event,) = jobs.watch(submitted.job_id)
        assert (event.event, event.result) == ("complete", {"n": 1})
        assert [getattr(event, name) for name in MEMBERS] == [getattr(event.job, name) for name in MEMBERS]
        assert jobs.wait(uuid4(), 1) is None
        assert list(jobs.watch(uuid4())) == list(jobs.watch("x")) == []
