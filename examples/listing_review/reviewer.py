"""The reviewer: rules over one listing. A pure function; it stands where an application would ask a model."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from examples.listing_review.listing import Listing

LONGEST_TITLE = 80
SHORTEST_TITLE = 20
FEWEST_WORDS = 8
LEAST_PRICE = Decimal("1.00")
CENT = Decimal("0.01")
CONTACT = re.compile(r"\S+@\S+\.\w|https?://|www\.|\+?\d[\d ()/-]{7,}\d")
HYPE = re.compile(r"!{2,}|\b(?:best|cheapest|unbeatable|must[- ]have)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that can be wrong with a listing, how much that costs, and what to tell the seller."""

    code: str
    cost: int
    broken: Callable[[Listing], bool]
    message: str

    def finding(self, listing: Listing) -> dict[str, str]:
        """Return what the seller is told about `listing`."""
        return {"code": self.code, "message": self.message.format(listing=listing)}


RULES = (
    Rule("title-short", 15, lambda it: len(it.title) < SHORTEST_TITLE, "The title says too little to be found."),
    Rule("title-long", 10, lambda it: len(it.title) > LONGEST_TITLE, "The title is cut in search results."),
    Rule("title-shouting", 15, lambda it: it.title.isupper(), "The title is in capitals."),
    Rule("hype", 10, lambda it: bool(HYPE.search(f"{it.title} {it.description}")), "Praise does not help a buyer."),
    Rule("description-short", 25, lambda it: len(it.description.split()) < FEWEST_WORDS, "Describe it in full."),
    Rule("contact-details", 40, lambda it: bool(CONTACT.search(it.description)), "No contact details here."),
    Rule("price-too-low", 30, lambda it: it.price < LEAST_PRICE, "A price of {listing.price} cannot be right."),
    Rule("price-not-in-cents", 10, lambda it: it.price % CENT != 0, "{listing.price} is no amount of money."),
    Rule("brand-missing", 10, lambda it: not it.attributes.get("brand"), "The brand is not given."),
    Rule("condition-missing", 10, lambda it: not it.attributes.get("condition"), "The condition is not given."),
)


def review(listing: Listing) -> dict[str, Any]:
    """Return the review of a listing: a score from 0 to 100, what was found, and a title to take instead."""
    broken = [rule for rule in RULES if rule.broken(listing)]
    return {
        "sku": listing.sku,
        "score": max(0, 100 - sum(rule.cost for rule in broken)),
        "findings": [rule.finding(listing) for rule in broken],
        "suggestedTitle": suggest_title(listing),
        "price": str(listing.price),
    }


def suggest_title(listing: Listing) -> str:
    """Return the title in quiet words, with the brand first, cut at a word."""
    words = HYPE.sub("", listing.title).split()
    if listing.title.isupper():
        words = [word if any(map(str.isdigit, word)) else word.capitalize() for word in words]
    brand = listing.attributes.get("brand", "")
    if brand.lower() not in " ".join(words).lower():
        words.insert(0, brand)
    while len(" ".join(words)) > LONGEST_TITLE:
        words.pop()
    return " ".join(words) or listing.title
