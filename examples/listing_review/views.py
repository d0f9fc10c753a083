"""The application's own endpoints: a page, and the review of one listing while the client waits."""

from __future__ import annotations

from pathlib import Path

from flask import Blueprint, Response, abort, current_app, jsonify, render_template, request
from marshmallow import ValidationError
from werkzeug.exceptions import HTTPException

from examples.listing_review.listing import Listing, ListingSchema
from examples.listing_review.service import InvalidReview, ReviewerUnavailable, review_listing

CATALOGUE = Path(__file__).with_name("catalogue.json")

reviews = Blueprint("reviews", __name__)


@reviews.get("/")
def index() -> str:
    """Show the page, with the sample catalogue to begin with."""
    return render_template("index.html", catalogue=CATALOGUE.read_text())


@reviews.post("/listings/review")
def review_now() -> Response:
    """Review one listing and answer with the review; the same as a job's result for the same listing."""
    listing = listing_of_request()
    try:
        return jsonify(review_listing(listing, slow_seconds=current_app.config["REVIEW_SLOW_SECONDS"]))
    except ReviewerUnavailable:
        abort(503, "The reviewer is away; try again.")
    except InvalidReview:
        abort(502, "The reviewer gave no valid review.")


def listing_of_request() -> Listing:
    """Return the listing that was sent, or answer 400, 415 or 422."""
    try:
        listing: Listing = ListingSchema().load(request.get_json())
    except ValidationError as error:
        abort(422, error.messages)
    return listing


@reviews.errorhandler(HTTPException)
def as_json(error: HTTPException) -> tuple[Response, int]:
    """Answer an error of these views in JSON."""
    return jsonify(error=error.description), error.code or 500
