"""docs/guarantees.md, held to the truth: its table of answers, and the proofs that it names."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from flask_async_jobs import AsyncJobs, JobError, JobRepository
from tests.integration.apps import serving
from tests.integration.shared import module_database
from tests.integration.stores import count

PAGE = Path(__file__).parents[2] / "docs" / "guarantees.md"
CASE = re.compile(r"^\| (yes|no) \| (yes|no) \| (yes|no) \| (\w+) \| (\w+) \|$", re.M)
PROOF = re.compile(r"\[`(test_\w+)`\]\(([^)]+)\)")
LEASE = timedelta(seconds=30)


def cases():
    """Return the rows of the table, each without and with `no-cache`."""
    for *state, answer, uncached in CASE.findall(PAGE.read_text()):
        used, fresh, active = (word == "yes" for word in state)
        yield pytest.param(used, fresh, active, {}, answer, id="-".join([*state, "cached"]))
        yield pytest.param(
            used, fresh, active, {"cache_control": "no-cache"}, uncached, id="-".join([*state, "no-cache"])
        )


shared, engine = module_database("cases")


@pytest.fixture
def jobs():
    jobs = AsyncJobs()
    jobs.register("work", lambda: None, coalesce=True, freshness=60)
    return jobs


@pytest.mark.parametrize(("used", "fresh", "active", "header", "answer"), list(cases()))
def test_a_submission_is_answered_as_the_table_says(jobs, engine, used, fresh, active, header, answer):
    store = JobRepository(engine)
    with serving(jobs, engine, FRESHNESS_ENABLED=True) as site:

        def claimed():
            (claim,) = store.claim(jobs._registry.rules(), 1, LEASE)
            return claim.job_id, claim.execution_token

        ids = {}
        if used:
            ids["replayed"] = site.submit("work", key="k")
            assert store.fail(*claimed(), JobError.of("Failed"))
        if fresh:
            ids["fresh"] = site.submit("work")
            assert store.complete(*claimed())
        if active:
            ids["coalesced"] = site.submit("work", cache_control="no-cache")
        before = count(engine)
        response = site.post("work", key="k", **header)
        assert (response.status_code, response.json["disposition"]) == (202, answer)
        assert response.json["jobId"] == ids.get(answer, response.json["jobId"])
        assert count(engine) == before + (answer == "created")
        assert (store.find_by_key("", "k") is not None) == (used or answer == "created")


def test_the_table_has_every_case_once():
    assert sorted(case[:3] for case in CASE.findall(PAGE.read_text())) == sorted(
        (used, fresh, active) for used in ("yes", "no") for fresh in ("yes", "no") for active in ("yes", "no")
    )


def test_every_proof_that_the_page_names_exists():
    proofs = set(PROOF.findall(PAGE.read_text()))
    missing = [
        (name, file)
        for name, file in proofs
        if not re.search(rf"^ *def {name}\(", (PAGE.parent / file).read_text(), re.M)
    ]
    assert proofs
    assert missing == []
