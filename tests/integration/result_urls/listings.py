"""`result_url` in every form, for jobs that make a listing."""

from flask import Flask, url_for

from flask_async_jobs.records import TypeRules
from tests.integration.stores import LEASE, new_job

FORMS = {
    "path": ("/listings/{job_id}", "/listings/{id}"),
    "endpoint": ("listing", "/listings/{id}"),
    "fixed": ("/accounts?sort=name#top", "/accounts?sort=name#top"),
    "called": (lambda job: url_for("listing", job_id=job.job_id), "/listings/{id}"),
    "relative": (lambda job: f"listings/{job.job_id}", "/listings/{id}"),
    "of_result": (lambda job: url_for("listing", job_id=job.result["listing"]), "/listings/17"),
}


def add_listing(app: Flask) -> None:
    """Add the route of the results."""
    app.add_url_rule("/listings/<job_id>", "listing", lambda job_id: {"listing": job_id})


def claimed(repository, type):
    """Return the claim of a new job of a type."""
    repository.insert(new_job(type))
    (claim,) = repository.claim([TypeRules(type)], 1, LEASE)
    return claim


def completed(repository, type, result='{"listing":17}'):
    """Return the id of a completed job of a type."""
    claim = claimed(repository, type)
    repository.complete(claim.job_id, claim.execution_token, result)
    return str(claim.job_id)
