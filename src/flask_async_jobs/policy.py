"""The hints that clients get: when to ask again, and how long an answer will be there."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from flask_async_jobs.config import Settings
from flask_async_jobs.states import JobView


class JobPolicy(Protocol):
    """Decides the hints of an answer. An application may pass its own as `policy=`."""

    def retry_after(self, job: JobView) -> int:
        """Return in how many whole seconds, at least 1, to ask again about a job that is active."""
        ...

    def expires_at(self, job: JobView) -> datetime:
        """Return until when the job can be read: the `Expires` of its status."""
        ...

    def freshness_window(self, type: str, option: timedelta | None) -> timedelta | None:
        """Return how long a completed job of `type` answers new submissions, or None for not at all.

        Args:
            type: The type that is submitted.
            option: What the handler was registered with.
        """
        ...


class DefaultJobPolicy:
    """The hints by the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def retry_after(self, job: JobView) -> int:
        """Return `RETRY_AFTER_SECONDS`, whatever the job."""
        return self._settings.retry_after_seconds

    def expires_at(self, job: JobView) -> datetime:
        """Return the last update plus `RETENTION`."""
        return job.last_updated_at + self._settings.retention

    def freshness_window(self, type: str, option: timedelta | None) -> timedelta | None:
        """Return the window of `FRESHNESS_PER_TYPE`, else the handler's, else the default one."""
        settings = self._settings
        if not settings.freshness_enabled:
            return None
        return settings.freshness_per_type.get(type) or option or settings.freshness_default_window
