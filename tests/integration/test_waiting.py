"""Conditional requests, and answers that are held: `ETag`, `If-None-Match`, `Prefer: wait`."""

import threading
import time

import pytest

from flask_async_jobs import AsyncJobs, JobFailed, JobRepository
from tests.integration.processes import application, running
from tests.integration.stores import claimed, new_job


@pytest.fixture
def jobs():
    return AsyncJobs()


@pytest.fixture
def repository(engine):
    return JobRepository(engine)


@pytest.fixture
def client(jobs, engine):
    jobs.register("a", lambda: None)
    return application(jobs, engine, AUTO_START=False).test_client()


@pytest.mark.parametrize("form", ['"{}"', 'W/"{}"', '"x", "{}"', "*"])
def test_a_state_that_the_client_knows_is_304(client, repository, form):
    job = repository.insert(new_job())
    response = client.get(f"/jobs/{job.job_id}", headers={"If-None-Match": form.format(1)})
    assert (response.status_code, response.data) == (304, b"")
    assert (response.headers["ETag"], response.headers["Cache-Control"]) == ('"1"', "no-store")
    assert response.headers["Retry-After"]


def test_another_state_is_told(client, repository):
    claim = claimed(repository)
    response = client.get(f"/jobs/{claim.job_id}", headers={"If-None-Match": '"1"'})
    assert (response.status_code, response.headers["ETag"]) == (200, '"2"')


def test_a_failure_is_never_304(client, repository):
    from flask_async_jobs import JobError

    claim = claimed(repository)
    repository.fail(claim.job_id, claim.execution_token, JobError.of("No"))
    for known in ('"3"', "*"):
        assert client.get(f"/jobs/{claim.job_id}", headers={"If-None-Match": known}).status_code == 422


@pytest.mark.parametrize(
    ("asked", "applied"),
    [
        ("wait=1", 1),
        ("WAIT = 1", 1),
        ('wait="1"', 1),
        ("respond-async, wait=1; x=y", 1),
        ("wait=0000000000001", 1),
        ("wait=0", None),
        ("wait=\u0661", None),
        ("wait=x", None),
    ],
)
def test_a_wait_is_applied_as_it_is_asked_for(client, repository, asked, applied):
    job = repository.insert(new_job())
    begun = time.monotonic()
    response = client.get(f"/jobs/{job.job_id}", headers={"Prefer": asked})
    assert response.status_code == 200
    assert response.headers.get("Preference-Applied") == (applied and f"wait={applied}")
    assert (time.monotonic() - begun >= 1) is bool(applied)


@pytest.mark.parametrize("seconds", ["60", "9" * 5_000], ids=["a minute", "for ever"])
def test_a_wait_is_capped(jobs, engine, repository, seconds):
    jobs.register("a", lambda: None)
    client = application(jobs, engine, AUTO_START=False, MAX_WAIT=1).test_client()
    response = client.get(f"/jobs/{repository.insert(new_job()).job_id}", headers={"Prefer": f"wait={seconds}"})
    assert response.headers["Preference-Applied"] == "wait=1"


def test_a_wait_that_sees_no_change_is_304_to_one_who_named_the_state(client, repository):
    job = repository.insert(new_job())
    headers = {"Prefer": "wait=1", "If-None-Match": '"1"'}
    response = client.get(f"/jobs/{job.job_id}", headers=headers)
    assert (response.status_code, response.headers["Preference-Applied"]) == (304, "wait=1")


def test_a_wait_does_not_hold_one_who_knows_another_state_or_an_ended_job(client, repository):
    begun = time.monotonic()
    job = repository.insert(new_job())
    headers = {"Prefer": "wait=20", "If-None-Match": '"7"'}
    assert client.get(f"/jobs/{job.job_id}", headers=headers).status_code == 200
    repository.cancel(job.job_id)
    assert client.get(f"/jobs/{job.job_id}", headers={"Prefer": "wait=20"}).status_code == 200
    assert time.monotonic() - begun < 10


def test_a_wait_ends_with_the_change(jobs, engine):
    gate = threading.Event()
    jobs.register("gate", lambda: gate.wait(10) and None)
    with running(jobs, engine, SSE_POLL_INTERVAL=0.1) as app:
        client = app.test_client()
        url = client.post("/jobs/gate").json["statusUrl"]
        while (seen := client.get(url)).json["status"] != "PROCESSING":
            client.get(url, headers={"Prefer": "wait=5"})
        threading.Timer(0.2, gate.set).start()
        response = client.get(url, headers={"Prefer": "wait=20", "If-None-Match": seen.headers["ETag"]})
        assert (response.json["status"], response.headers["Preference-Applied"]) == ("COMPLETED", "wait=20")


def test_a_submission_can_be_answered_by_the_end_of_its_job(jobs, engine):
    def refuse():
        raise JobFailed("No", "because", "no")

    jobs.register("quick", lambda: None)
    jobs.register("refuse", refuse)
    with running(jobs, engine, SSE_POLL_INTERVAL=0.1) as app:
        client = app.test_client()
        done = client.post("/jobs/quick", headers={"Prefer": "wait=10"})
        assert (done.status_code, done.json["status"]) == (200, "COMPLETED")
        assert done.headers["Location"].endswith(f"/jobs/{done.json['jobId']}/status")
        assert done.headers["Preference-Applied"] == "wait=10"
        again = client.post("/jobs/quick", headers={"Prefer": "wait=10", "If-None-Match": "*"})
        assert (again.status_code, again.json["status"]) == (200, "COMPLETED")  # only a read can be 304
        failed = client.post("/jobs/refuse", headers={"Prefer": "wait=10"})
        assert (failed.status_code, failed.json["code"]) == (422, "no")
        assert failed.headers["Location"]


def test_a_submission_whose_job_goes_on_is_answered_202_after_the_time(client):
    response = client.post("/jobs/a", headers={"Prefer": "wait=1"})
    assert (response.status_code, response.headers["Preference-Applied"]) == (202, "wait=1")
    assert response.json["disposition"] == "created"


def test_without_a_place_the_preference_is_ignored(jobs, engine, repository):
    jobs.register("a", lambda: None)
    client = application(jobs, engine, AUTO_START=False, SSE_MAX_STREAMS=1).test_client()
    job = repository.insert(new_job())
    stream = client.get(f"/jobs/{job.job_id}/events")
    response = client.get(f"/jobs/{job.job_id}", headers={"Prefer": "wait=20"})
    assert "Preference-Applied" not in response.headers
    assert client.post("/jobs/a", headers={"Prefer": "wait=20"}).status_code == 202
    stream.close()
