"""The redirect to the result, and what is checked when types are registered."""

import threading

import pytest

from flask_async_jobs import AsyncJobs, ConfigurationError, JobFailed, JobStatus
from tests.integration.processes import application, running
from tests.integration.result_urls.listings import FORMS, add_listing, claimed, completed
from tests.waiting import wait_until


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("form", FORMS)
def test_a_type_that_redirects_answers_303_with_the_url_of_the_result(client, repository, form, method):
    job_id = completed(repository, f"to_{form}")
    response = client.open(f"/jobs/{job_id}/status", method=method)
    assert response.status_code == 303
    assert response.headers["Location"] == "http://localhost" + FORMS[form][1].format(id=job_id)
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["Expires"]
    assert "Retry-After" not in response.headers
    assert "ETag" not in response.headers
    if method == "GET":
        assert response.json["resultUrl"] == response.headers["Location"]


def test_without_a_result_url_the_redirect_is_to_the_stored_result(client, repository):
    job_id = completed(repository, "to_result")
    response = client.get(f"/jobs/{job_id}/status", follow_redirects=True)
    assert (response.request.path, response.json) == (f"/jobs/{job_id}/result", {"listing": 17})


def test_a_redirect_is_never_304(client, repository):
    job_id = completed(repository, "to_path")
    for known in ('"3"', 'W/"3"', "*", '"1"'):
        for more in ({}, {"Prefer": "wait=5"}):
            response = client.get(f"/jobs/{job_id}", headers={"If-None-Match": known, **more})
            assert response.status_code == 303, known


def test_only_a_completed_job_redirects(client, repository):
    claim = claimed(repository, "to_path")
    assert client.get(f"/jobs/{claim.job_id}").status_code == 200
    assert client.delete(f"/jobs/{claim.job_id}").status_code == 202
    response = client.get(f"/jobs/{claim.job_id}")
    assert (response.status_code, response.json["status"]) == (200, "CANCELLED")


def test_the_other_routes_of_a_redirecting_job_stay_as_they_are(client, repository):
    job_id = completed(repository, "to_path")
    assert client.get(f"/jobs/{job_id}/operation").json["status"] == "Succeeded"
    assert client.get(f"/jobs/{job_id}/result").json == {"listing": 17}
    assert client.delete(f"/jobs/{job_id}").status_code == 409


def test_a_wait_ends_with_the_redirect_on_submission_and_status_alike(jobs, engine):
    gate = threading.Event()

    def refuse():
        raise JobFailed("No")

    jobs.register("gate", lambda: gate.wait(10) and None, result_url="/listings/{job_id}", redirect=True)
    jobs.register("refuse", refuse, result_url="/listings/{job_id}", redirect=True)
    app = application(jobs, engine, SSE_POLL_INTERVAL=0.1)
    add_listing(app)
    with app.app_context():
        jobs.start()
        client = app.test_client()
        done = client.post("/jobs/to_path", headers={"Prefer": "wait=10"})
        assert (done.status_code, done.headers["Preference-Applied"]) == (303, "wait=10")
        assert done.location == done.json["resultUrl"] == f"http://localhost/listings/{done.json['jobId']}"
        plain = client.post("/jobs/path", headers={"Prefer": "wait=10"})
        assert (plain.status_code, plain.location) == (200, f"http://localhost/jobs/{plain.json['jobId']}/status")
        failed = client.post("/jobs/refuse", headers={"Prefer": "wait=10"})
        assert (failed.status_code, failed.location) == (422, failed.json["instance"])
        url = client.post("/jobs/gate").location
        wait_until(lambda: client.get(url).json["status"] == "PROCESSING")
        etag = client.get(url).headers["ETag"]
        threading.Timer(0.2, gate.set).start()
        response = client.get(url, headers={"Prefer": "wait=10", "If-None-Match": etag})
        assert (response.status_code, response.headers["Preference-Applied"]) == (303, "wait=10")


@pytest.mark.parametrize("endpoint", ["unknown", "two", "number"])
def test_an_endpoint_that_the_application_lacks_is_refused_at_the_start(engine, endpoint):
    jobs = AsyncJobs()
    jobs.register("a", lambda: None, result_url=endpoint)
    app = application(jobs, engine)
    app.add_url_rule("/two/<job_id>/<other>", "two", lambda **ids: {})
    app.add_url_rule("/number/<int:job_id>", "number", lambda **ids: {})
    with pytest.raises(ConfigurationError, match=f"'a': result_url is '{endpoint}', and no endpoint"):
        jobs.start(app)


def test_an_application_without_the_librarys_routes_needs_no_endpoint(engine):
    jobs = AsyncJobs()
    jobs.register("a", lambda: None, result_url="unknown")
    with running(jobs, engine, WEB_ENABLED=False):
        job = jobs.wait(jobs.submit("a").job_id, 5)
    assert (job.status, job.result_url) == (JobStatus.COMPLETED, None)


def test_an_endpoint_with_a_uuid_is_taken(engine, repository):
    jobs = AsyncJobs()
    jobs.register("a", lambda: None, result_url="uuid")
    app = application(jobs, engine, PROCESSING_ENABLED=False)
    app.add_url_rule("/uuid/<uuid:job_id>", "uuid", lambda **ids: {})
    jobs.start(app)
    job_id = completed(repository, "a")
    assert app.test_client().get(f"/jobs/{job_id}").json["resultUrl"] == f"http://localhost/uuid/{job_id}"


def test_the_document_says_which_types_redirect(client, repository):
    redirected = set(client.get(f"/jobs/{completed(repository, 'to_path')}").headers.keys())
    paths = client.get("/docs/openapi.json").json["paths"]
    for path, method, documented in (
        ("/jobs/to_path", "post", True),
        ("/jobs/path", "post", False),
        ("/jobs/{job_id}/status", "get", True),
        ("/jobs/{job_id}", "get", True),
    ):
        answers = paths[path][method]["responses"]
        assert ("303" in answers) is documented
        if documented:
            assert redirected - answers["303"]["headers"].keys() == {"Content-Type", "Content-Length"}
            assert answers["303"]["content"]["application/json"]["example"]["resultUrl"]
