"""Reading a request about a batch: its items, each payload as the text that was sent, and the page asked for."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final
from uuid import UUID

from flask import Request

from flask_async_jobs import payloads
from flask_async_jobs.api.pages import Pages
from flask_async_jobs.api.problems import Problem, ProblemRaised
from flask_async_jobs.api.requests import text_of
from flask_async_jobs.batches import Item, accept_items
from flask_async_jobs.config import Settings
from flask_async_jobs.errors import InvalidPayload
from flask_async_jobs.json_reader import JsonReader
from flask_async_jobs.registry import Handler
from flask_async_jobs.states import uuid_form

BATCH_NOT_FOUND: Final = Problem("batch-not-found", "There is no such batch.")
PAGES: Final = Pages(default=25, longest=100)
LONGEST_BODY: Final = 64 * 1024 * 1024
FRAME: Final = 2_048
"""Bytes that an item may have beside its payload: an escaped `itemId` of 128 characters, and the names."""


def batch_id_of(text: str) -> UUID:
    """Return the id that a path names.

    Raises:
        ProblemRaised: It is not the 36-character form, so there is no such batch.
    """
    if not uuid_form.fullmatch(text):
        raise ProblemRaised(BATCH_NOT_FOUND)
    return UUID(text)


def items_of(request: Request, handler: Handler, settings: Settings) -> list[Item]:
    """Read and check the items of a submission.

    Raises:
        ProblemRaised: The body is not declared as JSON, or not UTF-8.
        InvalidPayload: See `accept_items`; or the body is not JSON.
        PayloadTooLarge: The body is longer than `longest_body`, or a payload than `PAYLOAD_MAX_BYTES`.
    """
    text = text_of(request, longest_body(settings))
    try:
        members = _members(JsonReader(text or payloads.EMPTY), settings.batch_max_items)
    except payloads.NotJson as error:
        raise InvalidPayload(f"the body cannot be read: {error}", malformed=True) from error
    errors: dict[str, Any] = {name: ["Unknown field."] for name in members if name != "items"}
    if "items" not in members:
        errors["items"] = ["Missing data for required field."]
    if errors:
        raise InvalidPayload("the batch cannot be accepted; nothing of it was stored", errors)
    return accept_items(handler, members["items"], str, settings)


def longest_body(settings: Settings) -> int:
    """Return how many bytes a submission may have: what every item at its longest takes, up to 64 MiB."""
    every = settings.batch_max_items * (settings.payload_max_bytes + FRAME)
    return max(min(every, LONGEST_BODY), settings.payload_max_bytes + FRAME)


def _members(reader: JsonReader, most: int) -> dict[str, Any]:
    """Return the members of the body, in which each payload is its text; of items no more than are too many."""
    if reader.next() != "{":
        reader.value()
        reader.end()
        raise InvalidPayload("the body is no object", {"_schema": ["Invalid input type."]})
    members = {}
    for name in reader.members():
        is_list = name == "items" and reader.next() == "["
        members[name] = _items(reader, most) if is_list else reader.value()
        if is_list and len(members[name]) > most:
            return members
    reader.end()
    return members


def _items(reader: JsonReader, most: int) -> list[Any]:
    return [_item(reader) for _ in islice(reader.elements(), most + 1)]


def _item(reader: JsonReader) -> Any:
    if reader.next() != "{":
        return reader.value()
    return {name: reader.text() if name == "payload" else reader.value() for name in reader.members()}
