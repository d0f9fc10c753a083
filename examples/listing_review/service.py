"""Ask the reviewer and check what it answers: the one way to a review, for a request and for a job alike."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

from marshmallow import Schema, ValidationError, fields, validate

from examples.listing_review.listing import Listing
from examples.listing_review.reviewer import review

TICKS = 10
NONSENSE: dict[str, Any] = {"score": 250, "findings": "none"}

Tell = Callable[[int], object]


class ReviewerUnavailable(Exception):
    """The reviewer could not be asked; later it may be."""


class InvalidReview(Exception):
    """What the reviewer answered is no review; asked again it would answer the same."""


class FindingSchema(Schema):
    """One finding."""

    code = fields.String(required=True)
    message = fields.String(required=True)


class ReviewSchema(Schema):
    """A review, as an answer and as the result of a job."""

    sku = fields.String(required=True)
    score = fields.Integer(required=True, strict=True, validate=validate.Range(0, 100))
    findings = fields.List(fields.Nested(FindingSchema), required=True)
    suggestedTitle = fields.String(required=True, validate=validate.Length(1, 200))
    price = fields.String(required=True, metadata={"description": "The price that was looked at, digit by digit."})


def review_listing(
    listing: Listing, *, slow_seconds: float, attempt: int = 1, tell: Tell = lambda _: None
) -> dict[str, Any]:
    """Return the checked review of a listing.

    Args:
        listing: What to review.
        slow_seconds: How long a listing that asks for a slow review takes.
        attempt: Which try this is, from 1.
        tell: Is told the percentage of a slow review; what it raises ends it.

    Raises:
        ReviewerUnavailable: The reviewer is away.
        InvalidReview: Its answer does not fit `ReviewSchema`.
    """
    if listing.rehearse == "slow":
        take_time(slow_seconds, tell)
    if listing.rehearse == "unavailable-once" and attempt == 1:
        raise ReviewerUnavailable("the reviewer does not answer")
    answer = NONSENSE if listing.rehearse == "invalid-answer" else review(listing)
    try:
        checked: dict[str, Any] = ReviewSchema().load(answer)
    except ValidationError as error:
        raise InvalidReview(f"the answer does not fit: {error}") from error
    return checked


def take_time(seconds: float, tell: Tell) -> None:
    """Wait in steps, and tell after each how far it is."""
    pause = Event()
    for tick in range(1, TICKS + 1):
        pause.wait(seconds / TICKS)
        tell(100 * tick // TICKS)
