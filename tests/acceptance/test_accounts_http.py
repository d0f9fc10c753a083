"""The accounts example as its reader runs it: a process, HTTP, and nothing imported from the library."""

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.apps.demos import Demo, running

pytestmark = pytest.mark.acceptance

ACCOUNTS = 2_000


def accounts(url: str, log: Path, port: int = 0) -> AbstractContextManager[Demo]:
    return running("examples.accounts.demo", url, log, port, ACCOUNTS=str(ACCOUNTS))


@pytest.fixture
def demo(empty_database_url: str, tmp_path: Path) -> Iterator[Demo]:
    with accounts(empty_database_url, tmp_path / "demo.log") as started:
        yield started


def test_accounts_are_evaluated_and_read_from_the_application(demo: Demo) -> None:
    assert page(demo, "true")["accounts"] == []
    accepted = demo.http.post("/jobs/accounts", headers={"Idempotency-Key": "monday-1"})
    assert accepted.json()["disposition"] == "created"
    ended = demo.poll(accepted)
    assert ended.status_code == 200
    assert (ended.json()["status"], ended.json()["percentComplete"]) == ("COMPLETED", 100)

    answer = demo.http.get("/accounts", params={"eligible": "true", "limit": 500})
    eligible = answer.json()["accounts"]
    assert 0 < len(eligible) < ACCOUNTS
    assert {account["eligibilityReason"] for account in eligible} == {"all-conditions-met"}
    completed_at = parsedate_to_datetime(answer.headers["Last-Modified"])
    assert completed_at.strftime("%Y-%m-%dT%H:%M:%S") == ended.json()["completedAt"][:19]


def test_every_account_is_evaluated_and_paging_by_key_reaches_each_once(demo: Demo) -> None:
    demo.poll(demo.http.post("/jobs/accounts"))
    ids = [account["id"] for truth in ("true", "false") for account in every_page(demo, truth)]
    assert sorted(ids) == list(range(1, ACCOUNTS + 1))


def test_who_has_seen_the_newest_outcome_is_answered_not_modified(demo: Demo) -> None:
    assert "Last-Modified" not in demo.http.get("/accounts").headers
    demo.poll(demo.http.post("/jobs/accounts"))
    seen = demo.http.get("/accounts").headers["Last-Modified"]
    again = demo.http.get("/accounts", headers={"If-Modified-Since": seen})
    assert (again.status_code, again.content) == (304, b"")
    older = {"If-Modified-Since": "Thu, 01 Jan 2026 00:00:00 GMT"}
    assert demo.http.get("/accounts", headers=older).status_code == 200


def test_work_done_just_now_is_not_done_again_unless_asked_for(demo: Demo) -> None:
    first = demo.http.post("/jobs/accounts", headers={"Idempotency-Key": "monday-1"})
    demo.poll(first)
    replayed = demo.http.post("/jobs/accounts", headers={"Idempotency-Key": "monday-1"}).json()
    fresh = demo.http.post("/jobs/accounts").json()
    renewed = demo.http.post("/jobs/accounts", headers={"Cache-Control": "no-cache"})
    assert (replayed["jobId"], replayed["disposition"]) == (first.json()["jobId"], "replayed")
    assert (fresh["jobId"], fresh["disposition"]) == (first.json()["jobId"], "fresh")
    assert renewed.json()["disposition"] == "created"
    assert demo.poll(renewed).json()["status"] == "COMPLETED"


def test_an_audit_that_finds_something_is_a_failure_with_its_words(demo: Demo) -> None:
    ended = demo.poll(demo.http.post("/jobs/accounts-audit"))
    problem = ended.json()
    assert ended.status_code == 422
    assert ended.headers["Content-Type"] == "application/problem+json"
    assert problem["title"] == "Ledger does not balance"
    assert problem["code"] == "ledger-unbalanced"
    assert re.fullmatch(r"2 account\(s\) differ .* by 25\.00 .* account 17\.", problem["detail"])
    assert "Retry-After" not in ended.headers


def test_statements_are_issued_by_another_interpreter(demo: Demo) -> None:
    assert demo.http.get("/accounts/1").json()["statement"] is None
    ended = demo.poll(demo.http.post("/jobs/statements"))
    assert ended.json()["status"] == "COMPLETED"
    for account_id in (1, ACCOUNTS):
        account = demo.http.get(f"/accounts/{account_id}").json()
        assert account["statement"]["jobId"] == ended.json()["jobId"]
        assert account["statement"]["balanceCents"] == account["balanceCents"]


def test_a_cancelled_job_stays_cancelled_and_its_worker_writes_nothing(demo: Demo) -> None:
    accepted = demo.http.post("/jobs/statements")
    cancelled = demo.http.delete(accepted.json()["cancelUrl"])
    assert (cancelled.status_code, cancelled.json()["status"]) == (202, "CANCELLED")
    assert demo.http.delete(accepted.json()["cancelUrl"]).status_code == 409

    later = demo.poll(demo.http.post("/jobs/statements"))
    assert later.json()["status"] == "COMPLETED"
    assert demo.http.get(accepted.headers["Location"]).json()["status"] == "CANCELLED"
    assert demo.http.get("/accounts/1").json()["statement"]["jobId"] == later.json()["jobId"]


@pytest.mark.parametrize(
    "query",
    ["eligible=yes", "limit=0", "limit=501", "limit=-1", "after=x", "after=9999999999", "after=%D9%A1"],
)
def test_a_query_that_makes_no_sense_is_answered_400(sqlite_demo: Demo, query: str) -> None:
    answer = sqlite_demo.http.get(f"/accounts?{query}")
    assert (answer.status_code, list(answer.json())) == (400, ["error"])


def test_swagger_ui_and_unknown_accounts(sqlite_demo: Demo) -> None:
    assert sqlite_demo.http.get("/docs/").status_code == 200
    document = sqlite_demo.http.get("/docs/openapi.json").json()
    assert {"/jobs/accounts", "/jobs/accounts-audit", "/jobs/statements"} <= set(document["paths"])
    assert sqlite_demo.http.get("/accounts/2001").status_code == 404
    assert sqlite_demo.http.get("/accounts/99999999999").status_code == 404


@pytest.mark.needs("curl")
def test_the_printed_lines_can_be_copied(demo: Demo) -> None:
    lines = [line for line in demo.printed().splitlines() if line.startswith("  ")]
    done = subprocess.run(["sh", "-e"], input="\n".join(lines), capture_output=True, text=True, check=True)
    status, accounts, cancelled, audited, issued = re.findall(r"^HTTP/1\.1 (\d+)", done.stdout, re.MULTILINE)
    assert (status, accounts, issued) == ("200", "200", "202")
    assert cancelled in {"202", "409"}  # nobody waited: the run may have been the faster one
    assert audited in {"200", "422"}


def test_a_taken_port_is_replaced_and_ctrl_c_ends_the_demo(empty_sqlite_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with accounts(empty_sqlite_url, tmp_path / "demo.log", port) as demo:
            assert demo.http.base_url.port != port
            demo.poll(demo.http.post("/jobs/accounts"))
            assert demo.stop(signal.SIGINT) == 0
            assert "Traceback" not in demo.printed()


@pytest.fixture(scope="module")
def sqlite_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One demo for the tests that change nothing."""
    folder = tmp_path_factory.mktemp("demo")
    with accounts(f"sqlite:///{folder / 'accounts.sqlite'}", folder / "demo.log") as started:
        yield started


def page(demo: Demo, eligible: str, after: int = 0) -> dict[str, Any]:
    body: dict[str, Any] = demo.http.get(f"/accounts?eligible={eligible}&limit=300&after={after}").json()
    return body


def every_page(demo: Demo, eligible: str) -> Iterator[dict[str, Any]]:
    after: int | None = 0
    while after is not None:
        body = page(demo, eligible, after)
        yield from body["accounts"]
        after = body["nextAfter"]
