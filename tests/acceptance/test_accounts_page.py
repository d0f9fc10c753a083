"""The page of the accounts example in a browser: a whole run, a server that is killed, a stream that is refused."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text

from tests.acceptance.apps.demos import Demo, running
from tests.acceptance.apps.harness import at_once
from tests.acceptance.apps.streams import opened
from tests.servers.browser import Browser, Page
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = [pytest.mark.acceptance, pytest.mark.needs("chromium")]

SUBSCRIBERS = 32
STATE = "document.getElementById('job').dataset.status"
PERCENT = "document.getElementById('progress').value"
LINK = "document.getElementById('link').dataset.link"
CLICK = "document.getElementById('%s').click()"
LINES = "[...document.querySelectorAll('#lines li')].map((line) => line.lastChild.textContent)"
ROWS = "[...document.querySelectorAll('#accounts tr')].map((row) => row.cells[0].textContent)"
LOCK = text("SELECT id FROM account WHERE id = 1001 FOR UPDATE")


def accounts(url: str, log: Path, port: int = 0) -> AbstractContextManager[Demo]:
    return running("examples.accounts.demo", url, log, port, ACCOUNTS="2000")


@pytest.fixture
def demo(empty_postgres_url: str, tmp_path: Path) -> Iterator[Demo]:
    with accounts(empty_postgres_url, tmp_path / "demo.log") as started:
        yield started


@pytest.mark.parametrize("width", [1024, 400])
def test_a_click_is_followed_to_the_outcome_and_a_reload_shows_it_again(
    demo: Demo, browser: Browser, tmp_path: Path, width: int
) -> None:
    with browser.open(str(demo.http.base_url), width=width) as page:
        page.evaluate(CLICK % "submit")
        until(page, f"{STATE} === 'COMPLETED'")
        until(page, f"{ROWS}.length === 5")
        assert page.evaluate(PERCENT) == 100
        until(page, f"{LINES}.length === 5")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        eligible = demo.http.get("/accounts?eligible=true&limit=5").json()["accounts"]
        assert page.evaluate(ROWS) == [str(account["id"]) for account in eligible]
        page.screenshot(tmp_path / "page.png")
        page.call("Page.reload")
        until(page, f"document.readyState === 'complete' && {STATE} === 'COMPLETED'")


def test_a_run_can_be_cancelled_in_the_middle(demo: Demo, browser: Browser, empty_postgres_url: str) -> None:
    with half_way(empty_postgres_url), browser.open(str(demo.http.base_url)) as page:
        page.evaluate(CLICK % "submit")
        until(page, f"{PERCENT} === 50")
        page.evaluate(CLICK % "cancel")
        until(page, f"{STATE} === 'CANCELLED'")
        assert page.evaluate("document.getElementById('cancel').disabled")


def test_the_bar_goes_on_to_the_end_over_a_killed_server(
    demo: Demo, browser: Browser, empty_postgres_url: str, tmp_path: Path
) -> None:
    port = demo.http.base_url.port
    with browser.open(str(demo.http.base_url)) as page, ExitStack() as stack:
        with half_way(empty_postgres_url):
            page.evaluate(CLICK % "submit")
            until(page, f"{PERCENT} === 50 && {LINK} === 'live'")
            demo.process.kill()
            until(page, f"{LINK} === 'reconnecting'")
            restarted = stack.enter_context(accounts(empty_postgres_url, tmp_path / "restarted.log", port))
            until(page, f"{LINK} === 'live'")
        until(page, f"{STATE} === 'COMPLETED'")
        job_id = page.evaluate("location.hash.slice(1)")
        assert restarted.http.get(f"/jobs/{job_id}").json()["attempt"] == 2
        lines = [line["line"] for line in restarted.http.get(f"/jobs/{job_id}/log").json()["lines"]]
        until(page, f"{LINES}.length >= {len(lines)}")
        assert page.evaluate(LINES) == lines
        begun = [number for number, line in enumerate(lines) if line.startswith("Attempt")]
        assert [lines[number] for number in begun] == ["Attempt 1 begins.", "Attempt 2 begins."]
        assert len(lines[begun[1] :]) == 5


def test_without_a_place_for_its_stream_the_page_polls(
    demo: Demo, browser: Browser, empty_postgres_url: str
) -> None:
    with half_way(empty_postgres_url):
        accepted = demo.http.post("/jobs/accounts").json()
        places = at_once([partial(opened, accepted["eventsUrl"])] * SUBSCRIBERS)
        with browser.open(f"{demo.http.base_url}/#{accepted['jobId']}") as page:
            until(page, f"{LINK} === 'polling'")
            until(page, f"{PERCENT} === 50 && {LINES}.length === 3")
            page.evaluate(CLICK % "cancel")
            until(page, f"{STATE} === 'CANCELLED'")
    for place in places:
        place.close()


@contextmanager
def half_way(url: str) -> Iterator[None]:
    """Let no run get beyond the half of the accounts: the one after it is locked."""
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(LOCK)
        yield
    engine.dispose()


def until(page: Page, expression: str) -> None:
    """Wait until a JavaScript expression is true in the page."""
    wait_until(
        lambda: page.evaluate(expression), 40, lambda: f"{expression}: {page.evaluate('document.body.innerText')}"
    )
