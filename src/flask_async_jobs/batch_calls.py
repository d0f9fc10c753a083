"""What an application can do with batches from Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from flask_async_jobs import payloads
from flask_async_jobs.batches import BatchRequest, accept_items
from flask_async_jobs.errors import InvalidPayload
from flask_async_jobs.instance import Instance
from flask_async_jobs.sessions import AnySession
from flask_async_jobs.submission import checked_owner, read_idempotency_key
from flask_async_jobs.submitted import SubmittedBatch


class BatchCalls(ABC):
    """The calls on the batches of the current application. Each needs an application context."""

    @abstractmethod
    def _instance(self) -> Instance:
        """Return what `init_app` made for the current application."""

    def submit_batch(
        self,
        type: str,
        items: Iterable[Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
        owner: str | None = None,
        session: AnySession | None = None,
    ) -> SubmittedBatch:
        """Store a batch, with a job for each item, in one transaction: all of it or nothing. Never waits.

        Items take no part in freshness and single-flight. `BATCH_REQUIRE_IDEMPOTENCY_KEY` is about requests; here a
        key is needed where the type requires one.

        Args:
            type: A registered type.
            items: 1 to `BATCH_MAX_ITEMS` mappings with `itemId`, unique non-blank text of at most 128 characters,
                and `payload`, a JSON value that the type's schema accepts; without one, or with None, it is `{}`.
            idempotency_key: Sent again with the same items in the same order it gives the same batch.
            owner: Who submits; 1 to 255 characters.
            session: As for `submit`: the batch exists if and only if its transaction commits.

        Raises:
            InvalidPayload: An item cannot be accepted; `errors` has the messages of each under `items`, by index.
            IdempotencyKeyConflict: The key was used for another type or other items.
            TooManyActive: A cap on active jobs leaves no room for every item.
            UnknownType, InvalidIdempotencyKey, Saturated, ValueError, StorageUnavailable: As for `submit`.
        """
        instance = self._instance()
        handler = instance.registry.get(type)
        request = BatchRequest(
            handler,
            accept_items(handler, list(items), _encoded_if_any, instance.settings),
            idempotency_key=None if idempotency_key is None else read_idempotency_key(idempotency_key),
            owner=checked_owner(owner),
        )
        return SubmittedBatch.of(instance.submit_batch(request, session=session))


def encoded(value: Any) -> str:
    """Return a payload as JSON text.

    Raises:
        InvalidPayload: It is no JSON value, or holds text that no database stores.
    """
    try:
        return payloads.encode(value)
    except (payloads.NotJson, RecursionError) as error:
        raise InvalidPayload(f"the payload cannot be stored: {error}") from error


def _encoded_if_any(value: Any) -> str:
    return payloads.EMPTY if value is None else encoded(value)
