"""Caps on active jobs: the locks under which they are counted, and what the counting statements are bound to."""

from __future__ import annotations

from collections.abc import Sequence

from flask_async_jobs import payloads
from flask_async_jobs.records import Cap


def locks_of(caps: Sequence[Cap], schema: str | None, type: str, owner: str) -> list[int]:
    """Return the lock of each scope, always in the order of the caps, so that none waits in a ring."""
    names = {"type": type, "owner": owner, "total": ""}
    return [payloads.number("\0".join((schema or "", cap.scope, names[cap.scope]))) for cap in caps]


def limits_of(caps: Sequence[Cap]) -> dict[str, int]:
    """Return the parameters of `Statements.room`."""
    return {f"most_{cap.scope}_": cap.most for cap in caps}
