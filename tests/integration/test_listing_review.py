"""The listing review example: its rules, its catalogue, and that a request and a batch give the same review."""

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from marshmallow import ValidationError
from sqlalchemy import Engine, create_engine, inspect

from examples.listing_review import app as application
from examples.listing_review.app import create_app
from examples.listing_review.demo import migrate
from examples.listing_review.handlers import jobs
from examples.listing_review.listing import Listing, ListingSchema
from examples.listing_review.reviewer import review
from examples.listing_review.service import InvalidReview, ReviewerUnavailable, ReviewSchema, review_listing
from examples.listing_review.submit import listings_of
from tests.waiting import wait_until

CATALOGUE = Path(application.__file__).with_name("catalogue.json").read_text()
GOOD = Listing(
    sku="lamp-1",
    title="Desk lamp with dimmer and warm light",
    description="LED lamp, dimmable in five steps, clamps to any table top.",
    price=Decimal("45.00"),
    attributes={"brand": "Lumis", "condition": "new"},
)
PRICES = ["45.00", "100.00", "1200.00", "19.99", "0.10", "9999999.999999999999999999"]


# The rules


def test_a_listing_with_nothing_wrong_has_a_hundred_points() -> None:
    found = review(GOOD)
    assert found == {
        "sku": "lamp-1",
        "score": 100,
        "findings": [],
        "suggestedTitle": f"Lumis {GOOD.title}",
        "price": "45.00",
    }


@pytest.mark.parametrize(
    ("change", "code", "score"),
    [
        ({"title": "Desk lamp"}, "title-short", 85),
        ({"title": "Desk lamp " * 9}, "title-long", 90),
        ({"title": "DESK LAMP WITH DIMMER"}, "title-shouting", 85),
        ({"title": "The best desk lamp there is"}, "hype", 90),
        ({"title": "A desk lamp like no other!!"}, "hype", 90),
        ({"description": "A lamp."}, "description-short", 75),
        ({"description": GOOD.description + " Call 0151 234 567 89."}, "contact-details", 60),
        ({"description": GOOD.description + " lamp@example.org"}, "contact-details", 60),
        ({"price": Decimal("0.99")}, "price-too-low", 70),
        ({"price": Decimal("79.995")}, "price-not-in-cents", 90),
        ({"attributes": {"condition": "new"}}, "brand-missing", 90),
        ({"attributes": {"brand": "Lumis"}}, "condition-missing", 90),
    ],
)
def test_each_rule_finds_one_thing(change: dict[str, Any], code: str, score: int) -> None:
    found = review(replace(GOOD, **change))
    assert ([finding["code"] for finding in found["findings"]], found["score"]) == ([code], score)


def test_the_score_is_never_below_zero_and_a_message_has_the_price_as_it_was_given() -> None:
    bad = Listing("x", "BEST!!", "www.example.org", Decimal("0.000"))
    found = review(bad)
    assert found["score"] == 0
    assert "A price of 0.000 cannot be right." in [finding["message"] for finding in found["findings"]]


@pytest.mark.parametrize(
    ("title", "brand", "suggested"),
    [
        ("WIRELESS MOUSE M500", "Klickx", "Klickx Wireless Mouse M500"),
        ("Klickx mouse, unbeatable!!", "klickx", "Klickx mouse,"),
        ("Best!!", "", "Best!!"),
        ("word " * 30, "Brand", " ".join(["Brand", *["word"] * 15])),
    ],
)
def test_the_suggested_title_is_quiet_short_and_has_the_brand(title: str, brand: str, suggested: str) -> None:
    assert review(replace(GOOD, title=title, attributes={"brand": brand}))["suggestedTitle"] == suggested


@pytest.mark.parametrize("listing", [GOOD, Listing("x", " ", "", Decimal(0)), replace(GOOD, title="!! " * 60)])
def test_every_review_fits_its_schema(listing: Listing) -> None:
    assert ReviewSchema().validate(review(listing)) == {}


# What is asked and answered


@pytest.mark.parametrize("price", PRICES)
def test_a_price_keeps_its_decimals(price: str) -> None:
    text = f'{{"sku": "a", "title": "t", "description": "", "price": {price}}}'
    assert str(ListingSchema().load(json.loads(text, parse_float=Decimal)).price) == price


@pytest.mark.parametrize(
    ("change", "member"),
    [
        ({"sku": ""}, "sku"),
        ({"title": ""}, "title"),
        ({"price": "NaN"}, "price"),
        ({"price": -1}, "price"),
        ({"price": Decimal("1e400")}, "price"),
        ({"attributes": {"brand": 7}}, "attributes"),
        ({"rehearse": "everything"}, "rehearse"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_is_no_listing_is_refused(change: dict[str, Any], member: str) -> None:
    with pytest.raises(ValidationError) as refused:
        ListingSchema().load({"sku": "a", "title": "t", "description": "", "price": 1, **change})
    assert list(refused.value.messages_dict) == [member]


def test_a_rehearsal_does_what_it_says() -> None:
    told: list[int] = []
    slow = replace(GOOD, rehearse="slow")
    assert review_listing(slow, slow_seconds=0, tell=told.append) == review(GOOD)
    assert told == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    away = replace(GOOD, rehearse="unavailable-once")
    with pytest.raises(ReviewerUnavailable):
        review_listing(away, slow_seconds=0)
    assert review_listing(away, slow_seconds=0, attempt=2) == review(GOOD)
    with pytest.raises(InvalidReview):
        review_listing(replace(GOOD, rehearse="invalid-answer"), slow_seconds=0)


def test_the_texts_of_a_catalogue_are_those_of_the_file() -> None:
    listings = listings_of(CATALOGUE)
    assert len(listings) == 12
    assert all(text in CATALOGUE for text in listings.values())
    assert {sku: json.loads(text) for sku, text in listings.items()} == {
        listing["sku"]: listing for listing in json.loads(CATALOGUE)
    }
    assert '"price": 1200.00' in listings["camera-003"]
    assert listings_of(' [\n{"sku":"a","t":"],[{"},{"sku": "b"} ,\t{"sku":"c"}] ') == {
        "a": '{"sku":"a","t":"],[{"}',
        "b": '{"sku": "b"}',
        "c": '{"sku":"c"}',
    }


@pytest.mark.parametrize(
    "text", ['[{"sku": "a"}, {"sku": "a"}]', "[]", "{}", "7", "[", "[7]", "[{}]", '{"a": [1]}', '[{"sku": ""}]']
)
def test_what_is_no_catalogue_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no list of listings|Expecting"):
        listings_of(text)


# The application


@pytest.fixture
def client(engine: Engine) -> Iterator[FlaskClient]:
    app = create_app(
        {"TESTING": True, "REVIEW_SLOW_SECONDS": 0, "ASYNC_JOBS_PROCESSING_POLL_INTERVAL": 0.1}, engine
    )
    jobs.start(app)
    yield app.test_client()
    jobs.shutdown(app=app)


def test_a_batch_gives_each_listing_the_review_that_a_request_gets(client: FlaskClient) -> None:
    listings = listings_of(CATALOGUE)
    items = items_of(client, listings)
    assert list(items) == list(listings)
    for sku, text in listings.items():
        asked = client.post("/listings/review", data=text, content_type="application/json")
        if "invalid-answer" in text:
            assert asked.status_code == 502
            assert items[sku]["error"] == {
                "title": "The reviewer gave no valid review",
                "detail": None,
                "code": "invalid-review",
            }
        elif "unavailable-once" in text:
            assert (asked.status_code, items[sku]["status"]) == (503, "COMPLETED")
            assert client.get(f"/jobs/{items[sku]['jobId']}").json["attempt"] == 2
        else:
            assert asked.status_code == 200
            assert asked.json == items[sku]["result"]
            assert asked.json["price"] in text


@pytest.mark.parametrize("price", PRICES)
def test_a_price_goes_through_a_batch_digit_by_digit(client: FlaskClient, price: str) -> None:
    text = f'{{"sku": "a", "title": "t", "description": "", "price": {price}}}'
    assert items_of(client, {"a": text})["a"]["result"]["price"] == price


def test_what_cannot_be_reviewed_is_answered_in_json(client: FlaskClient) -> None:
    for body, kind, status in (
        ("{}", "application/json", 422),
        ("{", "application/json", 400),
        ("{}", "text/plain", 415),
    ):
        answer = client.post("/listings/review", data=body, content_type=kind)
        assert (answer.status_code, list(answer.json)) == (status, ["error"])


def test_the_page_needs_nothing_from_elsewhere(client: FlaskClient) -> None:
    page = client.get("/")
    assert page.mimetype == "text/html"
    assert "keyboard-001" in page.text
    assert "http" not in page.text
    for name in ("page.js", "page.css", "batches.js"):
        with client.get(f"/static/{name}") as file:
            assert "http" not in file.text


def test_the_demo_makes_the_tables_once(empty_database_url: str) -> None:
    app = create_app({"TESTING": True})
    app.config["ASYNC_JOBS_DATABASE_URL"] = empty_database_url
    migrate(app)
    migrate(app)
    engine = create_engine(empty_database_url)
    assert {"async_jobs", "async_job_batches"} <= set(inspect(engine).get_table_names())
    engine.dispose()


def test_a_postgresql_address_gets_the_driver_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://me@host/name")
    assert application.database_url() == "postgresql+psycopg://me@host/name"
    monkeypatch.delenv("DATABASE_URL")
    assert application.database_url() == application.DEFAULT_DATABASE


def items_of(client: FlaskClient, listings: dict[str, str]) -> dict[str, Any]:
    """Submit listings, wait for the end of the batch and return its items by their id."""
    items = ", ".join(f'{{"itemId": "{sku}", "payload": {text}}}' for sku, text in listings.items())
    headers = {"Idempotency-Key": "k", "Content-Type": "application/json"}
    accepted = client.post("/batches/review", data=f'{{"items": [{items}]}}', headers=headers)
    assert accepted.status_code == 202, accepted.text
    wait_until(lambda: client.get(accepted.json["statusUrl"]).json["status"] == "COMPLETED", 20)
    page = client.get(accepted.json["itemsUrl"]).json
    return {item["itemId"]: item for item in page["items"]}
