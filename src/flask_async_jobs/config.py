"""The settings: every key, its default and its check."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Final, TypeVar

from flask_async_jobs.errors import ConfigurationError
from flask_async_jobs.states import is_type_name

PREFIX: Final = "ASYNC_JOBS_"
DEFAULT_HEARTBEAT: Final = timedelta(seconds=15)
LONGEST: Final = timedelta(days=3650)

T = TypeVar("T")

_iso_duration = re.compile(
    r"P(?=.)(?:(?P<weeks>\d+(?:\.\d+)?)W)?(?:(?P<days>\d+(?:\.\d+)?)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_url_prefix = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")
_schema_name = re.compile(r"[^\x00]{1,63}")


class Refused(Exception):
    """A value that a parser does not take; the message says what would be right."""


def duration(value: Any, *, zero: bool = False) -> timedelta:
    """Read a duration from a `timedelta`, ISO 8601 text (`PT30S`, `P1D`) or a number of seconds.

    Raises:
        Refused: It is none of these, negative, zero (unless `zero`), or longer than ten years.
    """
    refused = Refused("expected a duration such as 'PT30S', timedelta(seconds=30) or 30 (seconds)")
    parsed: timedelta
    if isinstance(value, timedelta):
        parsed = value
    elif isinstance(value, str):
        match = _iso_duration.fullmatch(value)
        if match is None:
            raise refused
        parsed = _timedelta({unit: float(text) for unit, text in match.groupdict().items() if text})
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        parsed = _timedelta({"seconds": float(value)})
    else:
        raise refused
    if not (timedelta(0) if zero else timedelta(microseconds=1)) <= parsed <= LONGEST:
        least = "at least 0" if zero else "more than 0"
        raise Refused(f"expected a duration of {least} and at most {LONGEST.days} days, such as 'PT30S'")
    return parsed


def _timedelta(units: dict[str, float]) -> timedelta:
    try:
        return timedelta(**units)
    except OverflowError:
        return timedelta.max


def _duration_or_zero(value: Any) -> timedelta:
    return duration(value, zero=True)


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Refused("expected True or False")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 2**31 - 1:
        raise Refused("expected a whole number of at least 1, such as 5")
    return value


def _prefix(value: Any) -> str:
    if not isinstance(value, str) or not _url_prefix.fullmatch(value):
        raise Refused("expected a path that starts with '/' and does not end with one, such as '/jobs'")
    return value


def _schema(value: Any) -> str:
    if not isinstance(value, str) or not _schema_name.fullmatch(value):
        raise Refused("expected the name of a schema, such as 'jobs'")
    return value


def _url(value: Any) -> str:
    if not isinstance(value, str) or "://" not in value:
        raise Refused("expected a database URL, such as 'postgresql+psycopg://user@host/name'")
    return value


def _backpressure(value: Any) -> str:
    if value not in ("wait", "queue", "reject"):
        raise Refused("expected 'wait', 'queue' or 'reject'")
    return str(value)


def _windows(value: Any) -> Mapping[str, timedelta]:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and is_type_name(k) for k in value):
        raise Refused("expected a mapping from type to duration, such as {'accounts': 'PT30M'}")
    return {str(type): duration(window) for type, window in value.items()}


def _optional(parse: Callable[[Any], T]) -> Callable[[Any], T | None]:
    return lambda value: None if value is None else parse(value)


def _setting(default: Any, parse: Callable[[Any], Any]) -> Any:
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True, slots=True)
class Settings:
    """The configuration of one application, checked as a whole. Durations are `timedelta`."""

    web_enabled: bool = _setting(True, _boolean)
    url_prefix: str = _setting("/jobs", _prefix)
    batches_url_prefix: str = _setting("/batches", _prefix)
    docs_url_prefix: str = _setting("/docs", _prefix)
    retention: timedelta = _setting(timedelta(hours=1), duration)
    retry_after_seconds: int = _setting(5, _count)
    coalesce_in_flight: bool = _setting(False, _boolean)
    processing_enabled: bool = _setting(True, _boolean)
    processing_concurrency_limit: int = _setting(32, _count)
    processing_lease: timedelta = _setting(timedelta(seconds=30), duration)
    processing_poll_interval: timedelta = _setting(timedelta(seconds=1), duration)
    backpressure: str = _setting("wait", _backpressure)
    backpressure_timeout: timedelta = _setting(timedelta(seconds=5), _duration_or_zero)
    backpressure_max_waiters: int = _setting(4, _count)
    sse_heartbeat: timedelta = _setting(DEFAULT_HEARTBEAT, duration)
    sse_poll_interval: timedelta = _setting(timedelta(seconds=1), duration)
    sse_max_pending_events: int = _setting(64, _count)
    sse_max_subscribers: int = _setting(32, _count)
    sse_max_streams: int = _setting(64, _count)
    log_max_bytes: int = _setting(1_048_576, _count)
    result_max_bytes: int = _setting(65_536, _count)
    payload_max_bytes: int = _setting(262_144, _count)
    purge_enabled: bool = _setting(False, _boolean)
    purge_interval: timedelta = _setting(timedelta(minutes=10), duration)
    max_active: int | None = _setting(None, _optional(_count))
    max_active_per_owner: int | None = _setting(None, _optional(_count))
    expose_errors: bool = _setting(False, _boolean)
    schema: str | None = _setting(None, _optional(_schema))
    recovery_enabled: bool = _setting(True, _boolean)
    recovery_scan_interval: timedelta = _setting(timedelta(seconds=30), duration)
    recovery_redispatch_after: timedelta = _setting(timedelta(minutes=1), duration)
    recovery_processing_timeout: timedelta = _setting(timedelta(minutes=15), duration)
    recovery_batch_size: int = _setting(100, _count)
    freshness_enabled: bool = _setting(False, _boolean)
    freshness_default_window: timedelta | None = _setting(None, _optional(duration))
    freshness_per_type: Mapping[str, timedelta] = field(default_factory=dict, metadata={"parse": _windows})
    batch_max_items: int = _setting(100, _count)
    batch_require_idempotency_key: bool = _setting(True, _boolean)
    max_wait: timedelta = _setting(timedelta(seconds=30), _duration_or_zero)
    shutdown_timeout: timedelta = _setting(timedelta(seconds=10), _duration_or_zero)
    auto_start: bool | None = _setting(None, _optional(_boolean))
    signed_urls: bool = _setting(False, _boolean)
    require_owner: bool = _setting(False, _boolean)
    notify_enabled: bool = _setting(True, _boolean)
    database_url: str | None = _setting(None, _optional(_url))

    @classmethod
    def from_mapping(cls, config: Mapping[str, Any]) -> Settings:
        """Read the keys that start with `ASYNC_JOBS_` and check them, each and together.

        Raises:
            ConfigurationError: A key is unknown, or its value makes no sense; the message names the key,
                the value and an example of a right one.
        """
        parsers = {PREFIX + f.name.upper(): (f.name, f.metadata["parse"]) for f in fields(cls)}
        values: dict[str, Any] = {}
        for key in sorted(k for k in config if isinstance(k, str) and k.startswith(PREFIX)):
            if key not in parsers:
                raise ConfigurationError(f"{key} is not a setting; the settings are {', '.join(sorted(parsers))}")
            name, parse = parsers[key]
            try:
                values[name] = parse(config[key])
            except Refused as refused:
                raise ConfigurationError(f"{key} is {_shown(key, config[key])}: {refused}") from None
        if "sse_heartbeat" not in values and "retention" in values:
            values["sse_heartbeat"] = min(DEFAULT_HEARTBEAT, values["retention"])
        settings = cls(**values)
        settings._check_together()
        return settings

    def _check_together(self) -> None:
        prefixes = (self.url_prefix, self.batches_url_prefix, self.docs_url_prefix)
        if (
            any(a != b and f"{a}/".startswith(f"{b}/") for a in prefixes for b in prefixes)
            or len(set(prefixes)) < 3
        ):
            raise ConfigurationError(
                f"ASYNC_JOBS_URL_PREFIX, _BATCHES_URL_PREFIX and _DOCS_URL_PREFIX are {', '.join(prefixes)}: "
                "none may lie within another; for example '/jobs', '/batches' and '/docs'"
            )
        if self.signed_urls:
            raise ConfigurationError(
                "ASYNC_JOBS_SIGNED_URLS is True: this version signs no URLs, and would hand out unsigned ones; "
                "for example False, with an owner_loader"
            )
        if self.sse_heartbeat > self.retention:
            raise ConfigurationError(
                f"ASYNC_JOBS_SSE_HEARTBEAT is {self.sse_heartbeat}, longer than ASYNC_JOBS_RETENTION "
                f"({self.retention}): a stream would end before its first heartbeat; for example 'PT15S'"
            )
        if self.freshness_default_window is not None:
            self.check_window("ASYNC_JOBS_FRESHNESS_DEFAULT_WINDOW", self.freshness_default_window)
        for type, window in self.freshness_per_type.items():
            self.check_window(f"ASYNC_JOBS_FRESHNESS_PER_TYPE[{type!r}]", window)

    def check_window(self, name: str, window: timedelta) -> None:
        """Refuse a freshness window that is longer than the retention, while freshness is on.

        Raises:
            ConfigurationError: The job would be purged before its window closes.
        """
        if self.freshness_enabled and window > self.retention:
            raise ConfigurationError(
                f"{name} is {window}, longer than ASYNC_JOBS_RETENTION ({self.retention}): the job would be purged "
                f"before its window closes; for example {self.retention}"
            )


def _shown(key: str, value: Any) -> str:
    return "hidden" if key == PREFIX + "DATABASE_URL" else repr(value)[:120]
