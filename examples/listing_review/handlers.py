"""The job type of this application. Its handler returns the review, which is stored as the job's result."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from flask import current_app

from examples.listing_review.listing import Listing, ListingSchema
from examples.listing_review.service import InvalidReview, ReviewerUnavailable, review_listing
from flask_async_jobs import AsyncJobs, JobContext, JobFailed

jobs = AsyncJobs()


@jobs.handler(
    "review",
    payload_schema=ListingSchema,
    max_attempts=3,
    retry_on=(ReviewerUnavailable,),
    backoff=timedelta(seconds=1),
    timeout=timedelta(minutes=2),
)
def review_in_background(ctx: JobContext, listing: Listing) -> dict[str, Any]:
    """Review a listing.

    The result is the review. A reviewer that is away is asked three times. An answer that is no review ends the
    job as FAILED with the code `invalid-review`; the other listings of a batch go on.
    """

    def tell(percent: int) -> None:
        if not ctx.progress(percent):
            ctx.raise_if_cancelled()

    try:
        seconds = current_app.config["REVIEW_SLOW_SECONDS"]
        return review_listing(listing, slow_seconds=seconds, attempt=ctx.attempt, tell=tell)
    except InvalidReview as error:
        current_app.logger.warning("no review of %s: %s", listing.sku, error)
        raise JobFailed("The reviewer gave no valid review", code="invalid-review") from error
