"""The page of the listing review example in a browser: send, follow, come back, send again what failed."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.acceptance.apps.demos import Demo, running
from tests.servers.browser import Browser, Page
from tests.waiting import wait_until

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = [pytest.mark.acceptance, pytest.mark.needs("chromium")]

FAILING = ["headset-004", "router-012"]
NARROW = 400
ROWS = "[...document.querySelectorAll('#items tr')].map(row => [...row.cells].map(cell => cell.innerText))"
NO_STREAMS = """
  globalThis.EventSource = class extends EventTarget {
    static CLOSED = 2;
    readyState = 2;
    constructor() { super(); setTimeout(() => this.dispatchEvent(new Event("error"))); }
    close() {}
  };
  null
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    url = f"sqlite:///{folder / 'reviews.sqlite'}"
    with running("examples.listing_review.demo", url, folder / "demo.log", FLASK_REVIEW_SLOW_SECONDS="1") as demo:
        yield demo


@pytest.fixture
def page(demo: Demo, browser: Browser) -> Iterator[Page]:
    with browser.open(f"{demo.http.base_url}/", width=NARROW, height=900) as opened:
        yield opened


def text_of(page: Page, element: str) -> str:
    return str(page.evaluate(f"document.getElementById('{element}').innerText"))


def press(page: Page, button: str) -> None:
    page.evaluate(f"document.getElementById('{button}').click()")


def wait_for_end(page: Page) -> dict[str, list[str]]:
    """Wait until the batch has ended and the page may be used again, and return its rows by the listing."""
    ready = "!document.getElementById('submit').disabled && document.getElementById('state').innerText === 'Done'"
    wait_until(lambda: page.evaluate(ready), 30, lambda: f"{text_of(page, 'batch')} {text_of(page, 'trouble')}")
    return {row[0].split("\n")[0]: row for row in page.evaluate(ROWS)}


def set_catalogue(page: Page, text: str) -> None:
    page.evaluate(f"document.getElementById('catalogue').value = {json.dumps(text)}")


def batches_of(page: Page) -> list[str]:
    return str(page.evaluate("location.hash")).removeprefix("#").split(",")


def items_of(demo: Demo, batch: str) -> dict[str, Any]:
    items = demo.http.get(f"/batches/{batch}/items?limit=100").json()["items"]
    return {item["itemId"]: item for item in items}


def test_a_catalogue_is_followed_to_its_end_and_what_failed_is_corrected_and_sent_again(
    demo: Demo, page: Page
) -> None:
    press(page, "submit")
    wait_until(lambda: re.match(r"[1-9]\d* of 12", text_of(page, "count")), 10, "the first reviews")
    rows = wait_for_end(page)
    [batch] = batches_of(page)
    items = items_of(demo, batch)
    assert list(rows) == list(items)
    assert text_of(page, "count") == "12 of 12, 2 failed"
    assert [sku for sku, row in rows.items() if "invalid-review" in row[2]] == FAILING
    for sku, item in items.items():
        if sku not in FAILING:
            assert rows[sku][1] == str(item["result"]["score"])
            assert all(finding["message"] in rows[sku][2] for finding in item["result"]["findings"])

    page.evaluate("globalThis.old = true; location.reload()")
    wait_until(lambda: page.evaluate("!globalThis.old && document.querySelectorAll('#items tr').length") == 12, 10)
    assert wait_for_end(page) == rows

    page.evaluate(
        "document.getElementById('catalogue').value = catalogue.value.replaceAll('invalid-answer', 'slow')"
    )
    press(page, "again")
    wait_until(lambda: len(batches_of(page)) == 2, 10, "the second batch")
    rows = wait_for_end(page)
    assert list(items_of(demo, batches_of(page)[1])) == FAILING
    assert items_of(demo, batch) == items
    assert list(rows) == list(items)
    assert [rows[sku][1] for sku in FAILING] == ["100", "100"]
    assert page.evaluate("document.getElementById('again').hidden")


def test_a_batch_is_polled_where_event_streams_cannot_be_had(demo: Demo, page: Page) -> None:
    page.evaluate(NO_STREAMS)
    press(page, "submit")
    assert len(wait_for_end(page)) == 12
    assert f"GET /batches/{batches_of(page)[0]}/events" not in demo.printed()


def test_numbers_are_sent_as_they_stand_in_the_catalogue(demo: Demo, page: Page) -> None:
    prices = {"a": "45.00", "b": "1200.00", "c,]}": "19.99", 'd"': "9999999.999999999999999999"}
    listings = (
        f'{{"sku": {json.dumps(sku)}, "title": "a [b], {{c", "description": "", "price": {price}}}'
        for sku, price in prices.items()
    )
    set_catalogue(page, f" [{' , '.join(listings)}\n] ")
    press(page, "submit")
    wait_for_end(page)
    items = items_of(demo, batches_of(page)[0])
    assert {sku: item["result"]["price"] for sku, item in items.items()} == prices


@pytest.mark.parametrize(
    ("catalogue", "told"),
    [
        ("[", "The catalogue is no JSON"),
        ("{}", "The catalogue is no list of listings."),
        ("[{}]", "items › 0 › itemId: "),
        (
            '[{"sku": "a", "title": "t", "description": "", "price": "cheap"}]',
            "a › payload › price: Not a valid number.",
        ),
    ],
)
def test_what_is_wrong_with_a_catalogue_is_told(page: Page, catalogue: str, told: str) -> None:
    set_catalogue(page, catalogue)
    press(page, "submit")
    wait_until(lambda: told in text_of(page, "trouble"), 10, lambda: f"{told!r} in {text_of(page, 'trouble')!r}")
    assert page.evaluate("document.getElementById('batch').hidden")
    assert not page.evaluate("document.getElementById('submit').disabled")


def test_an_address_of_a_batch_that_is_gone_says_so(demo: Demo, browser: Browser) -> None:
    gone = "3f0b8a54-6f0e-4d0c-9a57-0a8f4f6f2c11"
    with browser.open(f"{demo.http.base_url}/#{gone}", width=NARROW, height=900) as page:
        wait_until(
            lambda: text_of(page, "trouble") == "There is no such batch.", 10, lambda: text_of(page, "trouble")
        )


def test_the_page_fits_a_narrow_screen_and_asks_nobody_else(demo: Demo, page: Page) -> None:
    press(page, "submit")
    wait_for_end(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
    loaded = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert all(url.startswith((str(demo.http.base_url), "data:")) for url in loaded)
