"""What is reviewed: a listing, and the schema that a request and a stored payload are read by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from marshmallow import Schema, fields, post_load, validate

REHEARSALS = ("slow", "unavailable-once", "invalid-answer")


@dataclass(frozen=True, slots=True)
class Listing:
    """A listing as its seller wrote it; the price keeps its decimals, 45.00 is not 45.

    `rehearse` is for the demo: the listing asks that its review be slow, that the reviewer be away at the first
    attempt, or that it answer with nonsense.
    """

    sku: str
    title: str
    description: str
    price: Decimal
    attributes: Mapping[str, str] = field(default_factory=dict)
    rehearse: str | None = None


class ListingSchema(Schema):
    """A listing in a request, in a catalogue and in a job."""

    sku = fields.String(required=True, validate=validate.Length(1, 64))
    title = fields.String(required=True, validate=validate.Length(1, 200))
    description = fields.String(required=True, validate=validate.Length(max=5_000))
    price = fields.Decimal(required=True, validate=validate.Range(Decimal(0), Decimal(10_000_000)))
    attributes = fields.Dict(fields.String(), fields.String(validate=validate.Length(max=200)))
    rehearse = fields.String(validate=validate.OneOf(REHEARSALS))

    @post_load
    def listing(self, members: dict[str, Any], **_: Any) -> Listing:
        """Return the listing."""
        return Listing(**members)
