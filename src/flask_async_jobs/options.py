"""What a handler may be registered with, and the checks of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final, TypedDict

import marshmallow

from flask_async_jobs.config import Refused, duration
from flask_async_jobs.errors import ConfigurationError
from flask_async_jobs.states import JobView

ResultUrl = str | Callable[[JobView], str | None]

_path_or_address: Final = re.compile(r"(?:/(?!/)|https?://[^/{}])(?:[^\s\x00-\x1f\x7f{}<>\\]|\{job_id\})*")
_endpoint: Final = re.compile(r"\w[\w.-]*")


class HandlerKeywords(TypedDict, total=False):
    """The options of `AsyncJobs.handler`; each is described at `HandlerOptions`."""

    detached: bool
    payload_schema: type[marshmallow.Schema] | marshmallow.Schema | None
    freshness: timedelta | str | float | None
    coalesce: bool | None
    processing_timeout: timedelta | str | float | None
    require_idempotency_key: bool
    max_attempts: int
    retry_on: type[BaseException] | tuple[type[BaseException], ...]
    backoff: timedelta | str | float
    timeout: timedelta | str | float | None
    atomic: bool
    max_active: int | None
    result_url: ResultUrl | None
    redirect: bool


@dataclass(frozen=True, slots=True)
class HandlerOptions:
    """How the jobs of one type behave.

    Attributes:
        detached: The handler only starts the work; another process reports the outcome later.
        payload_schema: A marshmallow schema; without one the type takes no payload.
        freshness: How long a COMPLETED job answers new submissions, where `FRESHNESS_ENABLED` is on.
        coalesce: Whether submissions join an active job of the same work; None: as `COALESCE_IN_FLIGHT` says.
        processing_timeout: How long an attempt may be silent before it is taken for dead. Without it an attached
            job lives as long as its process, a detached one until `RECOVERY_PROCESSING_TIMEOUT`.
        require_idempotency_key: Whether a submission without a key is refused.
        max_attempts: How often a job may be started, after a failure in `retry_on` or after its process died.
        retry_on: The exceptions after which a job is tried again; any other fails it at once.
        backoff: The delay before the second attempt; it doubles with each, up to an hour, with some jitter.
        timeout: How long one attempt may take; then the job fails, though its thread goes on to its end.
        atomic: Whether the completion is written in the transaction of the handler's `db.session`, and committed
            with it: the job is COMPLETED if and only if what the handler wrote is there.
        max_active: How many jobs of the type may be active at once; a submission beyond is refused.
        result_url: Where the result of a COMPLETED job is: a path below the application's root or a whole address,
            with `{job_id}` where the id belongs; the name of an endpoint that takes a `job_id`; or a callable that
            is given the `JobView`, its result included, and returns a URL as `url_for` makes it, or None.
        redirect: Whether the status of a COMPLETED job is a redirect (303) to its result: to `result_url`, and
            without one to the library's own route of results.
    """

    detached: bool = False
    payload_schema: marshmallow.Schema | None = None
    freshness: timedelta | None = None
    coalesce: bool | None = None
    processing_timeout: timedelta | None = None
    require_idempotency_key: bool = False
    max_attempts: int = 1
    retry_on: tuple[type[BaseException], ...] = ()
    backoff: timedelta = timedelta(seconds=10)
    timeout: timedelta | None = None
    atomic: bool = False
    max_active: int | None = None
    result_url: ResultUrl | None = None
    redirect: bool = False

    @classmethod
    def of(cls, type: str, options: dict[str, Any]) -> HandlerOptions:
        """Check the options of one registration.

        Raises:
            ConfigurationError: An option is unknown, or its value makes no sense.
        """
        known = {field.name: _parsers[field.name] for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in options.items():
            if name not in known:
                raise ConfigurationError(f"{type!r}: {name!r} is not an option; the options are {', '.join(known)}")
            try:
                values[name] = known[name](value)
            except Refused as refused:
                raise ConfigurationError(f"{type!r}: {name} is {value!r}: {refused}") from None
        checked = cls(**values)
        if checked.atomic and checked.detached:
            raise ConfigurationError(
                f"{type!r}: atomic and detached exclude each other; another process completes it"
            )
        return checked


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused("expected True or False")
    return value


def _optional_boolean(value: Any) -> bool | None:
    return None if value is None else _boolean(value)


def _optional_duration(value: Any) -> timedelta | None:
    return None if value is None else duration(value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 2**31 - 1:
        raise Refused("expected a whole number of at least 1, such as 3")
    return value


def _optional_count(value: Any) -> int | None:
    return None if value is None else _count(value)


def _exceptions(value: Any) -> tuple[type[BaseException], ...]:
    classes = value if isinstance(value, tuple | list) else (value,)
    if not all(isinstance(each, type) and issubclass(each, BaseException) for each in classes):
        raise Refused("expected exception classes, such as (ConnectionError, TimeoutError)")
    return tuple(classes)


def _schema(value: Any) -> marshmallow.Schema | None:
    if isinstance(value, type) and issubclass(value, marshmallow.Schema):
        return value()
    if value is None or isinstance(value, marshmallow.Schema):
        return value
    raise Refused("expected a marshmallow schema, such as ListingSchema")


def _result_url(value: Any) -> ResultUrl | None:
    if isinstance(value, str):
        if _path_or_address.fullmatch(value) or _endpoint.fullmatch(value):
            return value
        raise Refused("expected a path such as '/listings/{job_id}', with no other braces, or an endpoint's name")
    if value is None:
        return None
    if not callable(value) or inspect.iscoroutinefunction(value):
        raise Refused("expected a path such as '/listings/{job_id}', an endpoint's name, or a plain callable")
    return value  # type: ignore[no-any-return]


_parsers = {
    "detached": _boolean,
    "payload_schema": _schema,
    "freshness": _optional_duration,
    "coalesce": _optional_boolean,
    "processing_timeout": _optional_duration,
    "require_idempotency_key": _boolean,
    "max_attempts": _count,
    "retry_on": _exceptions,
    "backoff": duration,
    "timeout": _optional_duration,
    "atomic": _boolean,
    "max_active": _optional_count,
    "result_url": _result_url,
    "redirect": _boolean,
}
