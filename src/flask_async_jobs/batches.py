"""Answering the submission of a batch: all of its items are stored, together, or none."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from flask_async_jobs import payloads
from flask_async_jobs.batch_repository import BatchRepository, NewBatch, NewItem, StoredBatch
from flask_async_jobs.config import Settings
from flask_async_jobs.errors import (
    IdempotencyKeyConflict,
    InvalidIdempotencyKey,
    InvalidPayload,
    Saturated,
    StorageUnavailable,
    TooManyActive,
    UnwantedPayload,
)
from flask_async_jobs.registry import Handler
from flask_async_jobs.states import BatchView, Disposition
from flask_async_jobs.submission import TURNS, Payload, Submissions, accept_payload

ITEM_ID_LIMIT: Final = 128

Errors = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Item:
    """One item that was accepted."""

    item_id: str
    payload: Payload


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What the submission of a batch asks for, checked in each of its parts.

    Attributes:
        handler: The handler of the type.
        items: What `accept_items` returned.
        idempotency_key: What `read_idempotency_key` returned.
        owner: Who submits; `''` for nobody.
    """

    handler: Handler
    items: Sequence[Item]
    idempotency_key: str | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True)
class BatchSubmission:
    """The answer to a submission: the batch, and whether it was `created` or `replayed`."""

    batch: BatchView
    disposition: Disposition


def accept_items(handler: Handler, items: Any, text_of: Callable[[Any], str], settings: Settings) -> list[Item]:
    """Check the items of a batch, each against the type.

    Args:
        handler: The handler of the type.
        items: A list of mappings with `itemId` and, where there is one, `payload`.
        text_of: Gives the JSON text of a payload.
        settings: How many items there may be, and how long a payload.

    Raises:
        InvalidPayload: See `accept_payload`; `errors` has the messages of every item under its index, from 0.
        PayloadTooLarge: A payload is longer than `PAYLOAD_MAX_BYTES`.
    """
    if not isinstance(items, list):
        raise _refused(["Not a valid list."])
    if not 1 <= len(items) <= settings.batch_max_items:
        raise _refused([f"Send 1 to {settings.batch_max_items} items."])
    accepted: list[Item] = []
    errors: dict[int, Errors] = {}
    places: dict[str, int] = {}
    for index, item in enumerate(items):
        wrong = _errors_of(item, places, index)
        if "_schema" not in wrong:
            try:
                payload = _payload(handler, item, text_of, settings.payload_max_bytes)
            except InvalidPayload as error:
                wrong["payload"] = _messages(error, index)
        if wrong:
            errors[index] = wrong
        else:
            accepted.append(Item(item["itemId"], payload))
    if errors:
        raise _refused(errors)
    return accepted


def _refused(errors: Any) -> InvalidPayload:
    return InvalidPayload("the batch cannot be accepted; nothing of it was stored", {"items": errors})


def _errors_of(item: Any, places: dict[str, int], index: int) -> Errors:
    """Return what is wrong with an item apart from its payload, and note its id."""
    if not isinstance(item, Mapping):
        return {"_schema": ["Invalid input type."]}
    errors: Errors = {str(name): ["Unknown field."] for name in item if name not in ("itemId", "payload")}
    item_id = item.get("itemId")
    if "itemId" not in item:
        errors["itemId"] = ["Missing data for required field."]
    elif not isinstance(item_id, str):
        errors["itemId"] = ["Not a valid string."]
    elif not item_id.strip():
        errors["itemId"] = ["Must not be blank."]
    elif len(item_id) > ITEM_ID_LIMIT:
        errors["itemId"] = [f"Longer than {ITEM_ID_LIMIT} characters."]
    elif not payloads.is_storable(item_id):
        raise InvalidPayload(f"the itemId of item {index} holds NUL or a lone surrogate, which cannot be stored")
    elif (first := places.setdefault(item_id, index)) != index:
        errors["itemId"] = [f"Not unique: item {first} has it too."]
    return errors


def _payload(handler: Handler, item: Mapping[str, Any], text_of: Callable[[Any], str], limit: int) -> Payload:
    text = text_of(item["payload"]) if "payload" in item else payloads.EMPTY
    return accept_payload(handler, text, limit)


def _messages(error: InvalidPayload, index: int) -> Any:
    """Return what is wrong with the payload of an item; an error that is no message of a field is raised again."""
    if isinstance(error, UnwantedPayload):
        return ["The type takes no payload: leave it out, or send {}."]
    if error.errors is not None:
        return error.errors
    error.args = (f"item {index}: {error}",)
    raise error


class Batches:
    """Answers submissions of batches to one application's store."""

    def __init__(self, repository: BatchRepository, submissions: Submissions) -> None:
        self._repository = repository
        self._submissions = submissions

    def submit(self, request: BatchRequest, *, room: bool = True) -> BatchSubmission:
        """Store a batch and all its items in one transaction, or answer with the batch that the key created.

        Items take no part in freshness and single-flight. One transaction of two statements and one lock for each
        cap; one read more if it is refused.

        Args:
            request: What is asked for.
            room: Whether a batch may be created at all; a key that is taken is answered all the same.

        Raises:
            Saturated: The batch would have to be created, and there is no room.
            TooManyActive: A cap leaves no room for all items.
            IdempotencyKeyConflict: The key was used for another type or other items.
            InvalidIdempotencyKey: The type requires a key and there is none.
            StorageUnavailable: The database cannot be asked. The batch may exist if its commit was under way.
        """
        handler = request.handler
        if request.idempotency_key is None and handler.options.require_idempotency_key:
            raise InvalidIdempotencyKey(f"the type {handler.type!r} requires an Idempotency-Key", missing=True)
        new = self._new_batch(request)
        if not room:
            if stored := self._find_by_key(new):
                return self._replayed(stored, new)
            raise Saturated("every slot is taken; nothing was stored")
        caps = self._submissions.caps(handler)
        for turn in range(TURNS):
            if batch := self._repository.insert(new, caps):
                return BatchSubmission(batch, Disposition.CREATED)
            if stored := self._find_by_key(new):
                return self._replayed(stored, new)
            if caps and turn:
                raise TooManyActive("the caps on active jobs leave no room for every item; nothing was stored")
        raise StorageUnavailable("the key is taken and freed again and again; nothing was stored")

    def _new_batch(self, request: BatchRequest) -> NewBatch:
        handler, owner = request.handler, request.owner
        items = [
            NewItem(
                item.item_id,
                item.payload.text,
                None if item.payload.text is None else item.payload.fingerprint,
                self._submissions.work_key(handler, owner, item.payload.fingerprint),
            )
            for item in request.items
        ]
        identity = json.dumps([(item.item_id, item.payload.fingerprint) for item in request.items])
        return NewBatch(uuid4(), handler.type, owner, payloads.digest(identity), request.idempotency_key, items)

    def _find_by_key(self, new: NewBatch) -> StoredBatch | None:
        if new.idempotency_key is None:
            return None
        return self._repository.find_by_key(new.owner, new.idempotency_key)

    @staticmethod
    def _replayed(stored: StoredBatch, new: NewBatch) -> BatchSubmission:
        if (stored.view.type, stored.fingerprint) != (new.type, new.fingerprint):
            raise IdempotencyKeyConflict("this key was used for another type or other items; send a new key")
        return BatchSubmission(stored.view, Disposition.REPLAYED)
