"""Answering a submission: idempotency → freshness → single-flight → create, each decided by the database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

import marshmallow

from flask_async_jobs import payloads
from flask_async_jobs.config import Settings
from flask_async_jobs.errors import (
    IdempotencyKeyConflict,
    InvalidIdempotencyKey,
    InvalidPayload,
    PayloadTooLarge,
    Saturated,
    TooManyActive,
    UnwantedPayload,
)
from flask_async_jobs.policy import JobPolicy
from flask_async_jobs.records import Cap, NewJob, Stored
from flask_async_jobs.registry import Handler
from flask_async_jobs.repository import JobRepository
from flask_async_jobs.states import Disposition, JobView, storable

OWNER_LIMIT: Final = 255
_key = re.compile(r"[\x21-\x7e]{1,255}")
_quoted = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
TURNS: Final = 5
"""How often a submission is tried whose winner is gone before it can be read."""


@dataclass(frozen=True, slots=True)
class Payload:
    """A payload that was accepted: its JSON text as it will be stored, and the fingerprint of its value."""

    text: str | None
    fingerprint: str


@dataclass(frozen=True, slots=True)
class WorkRequest:
    """What a submission asks for, checked in each of its parts.

    Attributes:
        handler: The handler of the type.
        payload: What `accept_payload` returned.
        idempotency_key: What `read_idempotency_key` returned.
        owner: Who submits; `''` for nobody.
        force: Skip the freshness window.
        run_at: Not before this instant.
    """

    handler: Handler
    payload: Payload
    idempotency_key: str | None = None
    owner: str = ""
    force: bool = False
    run_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """The answer to a submission: the job it stands for, and how it came by it."""

    job: JobView
    disposition: Disposition


def read_idempotency_key(text: str) -> str:
    """Return the key that `text` spells, bare or as a quoted string (RFC 8941 section 3.3.3).

    Raises:
        InvalidIdempotencyKey: It is not 1 to 255 visible ASCII characters.
    """
    key = text
    if isinstance(text, str) and text.startswith('"'):
        match = _quoted.fullmatch(text)
        key = re.sub(r"\\(.)", r"\1", match[1]) if match else ""
    if not isinstance(key, str) or not _key.fullmatch(key):
        raise InvalidIdempotencyKey("an Idempotency-Key is 1 to 255 visible ASCII characters, bare or quoted")
    return key


def checked_owner(owner: str | None) -> str:
    """Return the owner as it is stored: `''` for none, which None and empty text are.

    Raises:
        ValueError: It is not text of 1 to 255 characters that every database can hold.
    """
    if owner is None or owner == "":
        return ""
    if not isinstance(owner, str) or len(owner) > OWNER_LIMIT or storable(owner, OWNER_LIMIT) != owner:
        raise ValueError(f"{owner!r} is not an owner: give text of 1 to {OWNER_LIMIT} characters, without NUL")
    return owner


def accept_payload(handler: Handler, text: str | None, limit: int) -> Payload:
    """Check the JSON text of a submission against the type.

    Args:
        handler: The handler of the type.
        text: The JSON text, or None for no payload.
        limit: The longest text in bytes of UTF-8.

    Raises:
        InvalidPayload: It is not JSON, holds text that no database stores, is given to a type that takes none, or
            does not pass the schema (`errors` then has the messages by field).
        PayloadTooLarge: It is longer than `limit`.
    """
    if text is not None and len(text.encode("utf-8", "surrogatepass")) > limit:
        raise PayloadTooLarge(f"the payload is longer than {limit} bytes")
    try:
        value, fingerprint = payloads.read(text or payloads.EMPTY)
    except payloads.Unstorable as error:
        raise InvalidPayload(f"the payload cannot be stored: {error}") from error
    except payloads.NotJson as error:
        raise InvalidPayload(f"the payload cannot be read: {error}", malformed=True) from error
    schema = handler.options.payload_schema
    if schema is None:
        if value != {}:
            raise UnwantedPayload(f"the type {handler.type!r} takes no payload: send no body, or {{}}")
        return Payload(None, fingerprint)
    errors = _schema_errors(schema, value)
    if errors:
        raise InvalidPayload("the payload does not fit the type", errors)
    return Payload(text or payloads.EMPTY, fingerprint)


def _schema_errors(schema: marshmallow.Schema, value: Any) -> dict[str, Any]:
    try:
        schema.load(value)
    except marshmallow.ValidationError as error:
        return error.messages if isinstance(error.messages, dict) else {"_schema": error.messages}
    except ArithmeticError:  # a number that is JSON and beyond what a field's own type holds
        return {"_schema": ["A number is out of range."]}
    return {}


class Submissions:
    """Answers submissions to one application's job store."""

    def __init__(self, repository: JobRepository, policy: JobPolicy, settings: Settings) -> None:
        self._repository = repository
        self._policy = policy
        self._settings = settings

    def submit(self, request: WorkRequest, *, room: bool = True) -> Submission:
        """Make sure that this work is done.

        A key that is taken answers with the job it created; a job that completed within the freshness window
        answers unless `force`; an active job answers where the type coalesces; otherwise a job is created. One
        statement unless freshness or a cap applies or a unique index refuses the job.

        Args:
            request: What is asked for.
            room: Whether a job may be created at all; an answer from another job is given all the same.

        Raises:
            Saturated: A job would have to be created, and there is no room.
            TooManyActive: As many jobs are active as a cap allows.
            IdempotencyKeyConflict: The key was used for another type or payload.
            InvalidIdempotencyKey: The type requires a key and there is none.
            StorageUnavailable: The database cannot be asked. The job may exist if its commit was under way.
        """
        handler = request.handler
        if request.idempotency_key is None and handler.options.require_idempotency_key:
            raise InvalidIdempotencyKey(f"the type {handler.type!r} requires an Idempotency-Key", missing=True)
        new = self._new_job(request)
        window = None
        if not request.force:
            window = self._policy.freshness_window(handler.type, handler.options.freshness)
        if (window is not None or not room) and (stored := self._find_by_key(new)):
            return self._replayed(stored, new)
        if window is not None and (stored := self._repository.find_fresh(new.work_key, window)):
            return Submission(stored.view, Disposition.FRESH)
        if room:
            return self._create(new, self.caps(handler))
        if stored := self._find_in_flight(new):
            return Submission(stored.view, Disposition.COALESCED)
        raise Saturated("every slot is taken; nothing was stored")

    def work_key(self, handler: Handler, owner: str, fingerprint: str) -> str:
        """Return the key of this work: what makes two submissions the same."""
        return payloads.digest("\0".join((handler.type, owner, fingerprint)))

    def _new_job(self, request: WorkRequest) -> NewJob:
        handler, payload = request.handler, request.payload
        work_key = self.work_key(handler, request.owner, payload.fingerprint)
        coalesce = handler.options.coalesce
        coalesces = self._settings.coalesce_in_flight if coalesce is None else coalesce
        return NewJob(
            job_id=uuid4(),
            type=handler.type,
            owner=request.owner,
            work_key=work_key,
            fingerprint=None if payload.text is None else payload.fingerprint,
            coalescing_key=work_key if coalesces else None,
            idempotency_key=request.idempotency_key,
            payload=payload.text,
            run_at=request.run_at,
        )

    def caps(self, handler: Handler) -> list[Cap]:
        """Return how many jobs may be active, by scope."""
        limits = {
            "total": self._settings.max_active,
            "type": handler.options.max_active,
            "owner": self._settings.max_active_per_owner,
        }
        return [Cap(scope, most) for scope, most in limits.items() if most is not None]

    def _create(self, new: NewJob, caps: list[Cap]) -> Submission:
        """Insert, and ask who was first only when the row was refused.

        The winner may end between the two statements; then nobody is first any more, and the insert is tried again.
        """
        for turn in range(TURNS):
            if job := self._repository.insert(new, caps):
                return Submission(job, Disposition.CREATED)
            if stored := self._find_by_key(new):
                return self._replayed(stored, new)
            if stored := self._find_in_flight(new):
                return Submission(stored.view, Disposition.COALESCED)
            if caps and turn:
                raise TooManyActive("as many jobs are active as are allowed at once")
        # No key refused it, so it is another constraint, and its violation is told as it is.
        return Submission(self._repository.insert_or_raise(new), Disposition.CREATED)

    def _find_in_flight(self, new: NewJob) -> Stored | None:
        if new.coalescing_key is None:
            return None
        return self._repository.find_in_flight(new.coalescing_key)

    def _find_by_key(self, new: NewJob) -> Stored | None:
        if new.idempotency_key is None:
            return None
        return self._repository.find_by_key(new.owner, new.idempotency_key)

    @staticmethod
    def _replayed(stored: Stored, new: NewJob) -> Submission:
        nothing = payloads.fingerprint({})
        same_payload = (stored.fingerprint or nothing) == (new.fingerprint or nothing)
        if stored.view.type != new.type or not same_payload:
            raise IdempotencyKeyConflict("this key was used for another type or another payload; send a new key")
        return Submission(stored.view, Disposition.REPLAYED)
