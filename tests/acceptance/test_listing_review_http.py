"""The listing review example as its reader runs it: a process, the script that submits, and HTTP."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.apps.demos import ROOT, Demo, running

pytestmark = pytest.mark.acceptance

MODULE = "examples.listing_review.demo"
CATALOGUE = ROOT / "examples" / "listing_review" / "catalogue.json"
FAILING = ["headset-004", "router-012"]
STATUS_URL = re.compile(r"^(\d+) listings, key (\S+): (\S+)$", re.MULTILINE)


@pytest.fixture
def demo(empty_database_url: str, tmp_path: Path) -> Iterator[Demo]:
    with running(MODULE, empty_database_url, tmp_path / "demo.log", FLASK_REVIEW_SLOW_SECONDS="0.5") as started:
        yield started


def submit(demo: Demo, catalogue: Path = CATALOGUE, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "examples.listing_review.submit", str(catalogue), *options]
    at = ["--url", str(demo.http.base_url)]
    return subprocess.run([*command, *at], cwd=ROOT, capture_output=True, text=True, timeout=60)


def items_of(demo: Demo, status_url: str) -> dict[str, Any]:
    summary = demo.http.get(status_url).json()
    items = demo.http.get(summary["itemsUrl"]).json()["items"]
    return {item["itemId"]: item for item in items}


def test_a_catalogue_is_reviewed_and_only_what_failed_is_sent_again(demo: Demo) -> None:
    first = submit(demo)
    assert first.returncode == 1, first.stderr
    [(total, key, url)] = STATUS_URL.findall(first.stdout)
    assert total == "12"
    assert re.search(r"^camera-003 +100  nothing found$", first.stdout, re.MULTILINE)
    assert re.search(r"^mouse-002 +\d+  title-shouting, hype", first.stdout, re.MULTILINE)
    assert (
        len(re.findall(r"  –  invalid-review: The reviewer gave no valid review$", first.stdout, re.MULTILINE)) == 2
    )
    assert first.stdout.endswith("10 reviewed, 2 not\n")
    before = items_of(demo, url)
    assert [sku for sku, item in before.items() if item["status"] == "FAILED"] == FAILING
    assert demo.http.get(f"/jobs/{before['desk-006']['jobId']}").json()["attempt"] == 2

    assert STATUS_URL.findall(submit(demo).stdout) == [("12", key, url)]
    again = submit(demo, CATALOGUE, "--resubmit-failed")
    assert again.returncode == 1
    _, second = STATUS_URL.findall(again.stdout)
    assert second[:2] == ("2", f"{key}-2")
    assert list(items_of(demo, second[2])) == FAILING
    assert items_of(demo, url) == before
    rounds = STATUS_URL.findall(submit(demo, CATALOGUE, "--resubmit-failed").stdout)
    assert rounds[:2] == [("12", key, url), second]
    assert [round[:2] for round in rounds[2:]] == [("2", f"{key}-3")]


def test_a_catalogue_without_failures_is_done_at_once_and_one_that_makes_no_sense_is_not_taken(
    demo: Demo, tmp_path: Path
) -> None:
    listing = {"sku": "a", "title": "t", "description": "", "price": 45}
    catalogue = tmp_path / "catalogue.json"
    catalogue.write_text(json.dumps([listing]))
    done = submit(demo, catalogue, "--key", "mine", "--resubmit-failed")
    assert (done.returncode, len(STATUS_URL.findall(done.stdout))) == (0, 1)
    catalogue.write_text(json.dumps([listing | {"title": "another"}]))
    refused = submit(demo, catalogue, "--key", "mine")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Idempotency-Key conflict" in refused.stderr
    catalogue.write_text(json.dumps([listing, listing | {"sku": "b", "price": "cheap"}]))
    refused = submit(demo, catalogue)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "Not a valid number." in refused.stderr
    catalogue.write_text("[]")
    refused = submit(demo, catalogue)
    assert refused.returncode == 2
    assert refused.stderr == "the catalogue is no list of listings, each with a sku of its own\n"


@pytest.mark.needs("curl")
def test_the_printed_lines_can_be_copied_and_ctrl_c_ends_the_demo(empty_sqlite_url: str, tmp_path: Path) -> None:
    with running(MODULE, empty_sqlite_url, tmp_path / "demo.log", FLASK_REVIEW_SLOW_SECONDS="0.1") as demo:
        lines = "\n".join(line for line in demo.printed().splitlines() if line.startswith("  "))
        lines = lines.replace("python -m", f"{sys.executable} -m")
        assert {"/jobs/review", "/batches/review"} <= set(demo.http.get("/docs/openapi.json").json()["paths"])
        done = subprocess.run(["sh", "-c", lines], cwd=ROOT, capture_output=True, text=True)
        assert done.stderr == ""
        assert [round[0] for round in STATUS_URL.findall(done.stdout)] == ["12", "12", "2"]
        assert json.loads(done.stdout.splitlines()[-1])["price"] == "45.00"
        assert demo.stop(signal.SIGINT) == 0
        assert "Traceback" not in demo.printed()
