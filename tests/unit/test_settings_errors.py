"""What makes no sense is refused at start-up, with a message that says which key, which value and what is right."""

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask

from flask_async_jobs import AsyncJobs, ConfigurationError
from flask_async_jobs.config import Settings

DURATIONS = [
    *("RETENTION", "SSE_HEARTBEAT", "SSE_POLL_INTERVAL", "PURGE_INTERVAL", "RECOVERY_SCAN_INTERVAL"),
    *("RECOVERY_REDISPATCH_AFTER", "RECOVERY_PROCESSING_TIMEOUT", "PROCESSING_LEASE", "PROCESSING_POLL_INTERVAL"),
    "FRESHNESS_DEFAULT_WINDOW",
]
MAYBE_ZERO = ["BACKPRESSURE_TIMEOUT", "MAX_WAIT", "SHUTDOWN_TIMEOUT"]
BOOLEANS = [
    *("WEB_ENABLED", "COALESCE_IN_FLIGHT", "PROCESSING_ENABLED", "PURGE_ENABLED", "EXPOSE_ERRORS"),
    *("RECOVERY_ENABLED", "FRESHNESS_ENABLED", "BATCH_REQUIRE_IDEMPOTENCY_KEY", "AUTO_START", "SIGNED_URLS"),
    *("REQUIRE_OWNER", "NOTIFY_ENABLED"),
]
COUNTS = [
    *("RETRY_AFTER_SECONDS", "PROCESSING_CONCURRENCY_LIMIT", "BACKPRESSURE_MAX_WAITERS", "SSE_MAX_SUBSCRIBERS"),
    *("SSE_MAX_PENDING_EVENTS", "SSE_MAX_STREAMS", "LOG_MAX_BYTES", "RESULT_MAX_BYTES", "PAYLOAD_MAX_BYTES"),
    *("MAX_ACTIVE", "MAX_ACTIVE_PER_OWNER", "RECOVERY_BATCH_SIZE", "BATCH_MAX_ITEMS"),
]
PREFIXES = ["URL_PREFIX", "BATCHES_URL_PREFIX", "DOCS_URL_PREFIX"]
OPTIONAL = ["FRESHNESS_DEFAULT_WINDOW", "AUTO_START", "MAX_ACTIVE", "MAX_ACTIVE_PER_OWNER", "SCHEMA"]
HOUR = timedelta(hours=1)


def configure(jobs: AsyncJobs | None = None, **settings: Any) -> AsyncJobs:
    """Call `init_app` with these settings on a database that nobody will ask."""
    app = Flask("consumer")
    app.config.update({f"ASYNC_JOBS_{name}": value for name, value in settings.items()})
    app.config.setdefault("ASYNC_JOBS_DATABASE_URL", "sqlite:////nowhere/none.sqlite")
    app.config.setdefault("ASYNC_JOBS_WEB_ENABLED", False)  # making an OpenAPI document takes time
    jobs = jobs or AsyncJobs()
    jobs.init_app(app)
    return jobs


def refusal(jobs: AsyncJobs | None = None, **settings: Any) -> str:
    with pytest.raises(ConfigurationError) as refused:
        configure(jobs, **settings)
    return str(refused.value)


def assert_refused(name: str, value: Any, example: str) -> None:
    message = refusal(**{name: value})
    assert f"ASYNC_JOBS_{name}" in message
    assert repr(value) in message
    assert example in message


# Settings


@pytest.mark.parametrize("name", ["RETENTON", "RETENTION_", "retention", "", "PAYLOAD"])
def test_an_unknown_key_is_named(name: str) -> None:
    message = refusal(**{name: 1})
    assert f"ASYNC_JOBS_{name}" in message
    assert "ASYNC_JOBS_RETENTION" in message


def test_keys_of_others_are_nobodys_business() -> None:
    app = Flask("consumer")
    app.config.update({"ASYNC_JOB": 1, "JOBS_RETENTION": 1, "ASYNC_JOBS_DATABASE_URL": "sqlite:///x"})
    AsyncJobs().init_app(app)
    assert app.extensions["async_jobs"].settings.database_url == "sqlite:///x"


@pytest.mark.parametrize("name", DURATIONS)
def test_a_duration_that_makes_no_sense_is_refused(name: str) -> None:
    senseless = ("", "30", "30s", "PT", "P", "PT-1S", "pt1s", 0, -1, timedelta(0), timedelta(-1), float("nan"))
    for value in (*senseless, float("inf"), True, [], b"PT1S", "P99999D", timedelta.max):
        assert_refused(name, value, "PT30S")


@pytest.mark.parametrize("name", MAYBE_ZERO)
def test_some_durations_may_be_zero_but_not_less(name: str) -> None:
    for value in (0, timedelta(0), "PT0S"):
        configure(**{name: value})
    for value in (-1, timedelta(-1), "0", None, False):
        assert_refused(name, value, "PT30S")


@pytest.mark.parametrize("value", [timedelta(minutes=90), "PT90M", "PT1H30M", "PT5400S", 5400, 5400.0, "PT1.5H"])
def test_a_duration_may_be_written_in_three_ways(value: Any) -> None:
    configure(RETENTION=value, FRESHNESS_ENABLED=True, FRESHNESS_DEFAULT_WINDOW=timedelta(minutes=90))
    refusal(RETENTION=value, FRESHNESS_ENABLED=True, FRESHNESS_DEFAULT_WINDOW=timedelta(minutes=90, seconds=1))


@pytest.mark.parametrize("name", BOOLEANS)
def test_a_switch_is_true_or_false(name: str) -> None:
    for value in (0, 1, "true", "", []):
        assert_refused(name, value, "True or False")


@pytest.mark.parametrize("name", COUNTS)
def test_a_count_is_a_whole_number_of_at_least_one(name: str) -> None:
    for value in (0, -1, 0.5, 5.0, "5", True, 2**31, []):
        assert_refused(name, value, "such as 5")


@pytest.mark.parametrize("name", PREFIXES)
def test_a_prefix_is_a_path(name: str) -> None:
    for value in ("", "/", "jobs", "/jobs/", "//jobs", "/jo bs", "/jobs?x", "/<x>", "/jobs\n", None, 1):
        assert_refused(name, value, "'/jobs'")


def test_other_values_are_checked_too() -> None:
    assert_refused("BACKPRESSURE", "waits", "'wait', 'queue' or 'reject'")
    assert_refused("BACKPRESSURE", ["wait"], "'wait', 'queue' or 'reject'")
    for value in ("", 1, "x" * 64, "a\0b"):
        assert_refused("SCHEMA", value, "'jobs'")
    for value in ([], "PT1H", {"a b": "PT1H"}, {1: "PT1H"}):
        assert_refused("FRESHNESS_PER_TYPE", value, "{'accounts': 'PT30M'}")
    assert_refused("FRESHNESS_PER_TYPE", {"accounts": 0}, "PT30S")


@pytest.mark.parametrize("name", ["RETENTION", "WEB_ENABLED", "RETRY_AFTER_SECONDS", "BACKPRESSURE"])
def test_a_setting_without_a_value_is_refused(name: str) -> None:
    assert "None" in refusal(**{name: None})


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_setting_that_is_off_by_default_may_be_none(name: str) -> None:
    configure(**{name: None})


def test_prefixes_do_not_lie_within_each_other() -> None:
    for settings in (
        {"BATCHES_URL_PREFIX": "/jobs"},
        {"DOCS_URL_PREFIX": "/jobs/docs"},
        {"URL_PREFIX": "/batches/jobs"},
    ):
        message = refusal(**settings)
        assert "ASYNC_JOBS_URL_PREFIX" in message
        assert next(iter(settings.values())) in message
    configure(URL_PREFIX="/job", BATCHES_URL_PREFIX="/jobs", DOCS_URL_PREFIX="/jobs-docs")


def test_the_database_url_is_never_shown() -> None:
    message = refusal(DATABASE_URL="user:secret@host")
    assert "ASYNC_JOBS_DATABASE_URL" in message
    assert "secret" not in message
    assert "postgresql+psycopg://" in message


def test_a_heartbeat_is_not_longer_than_the_retention() -> None:
    message = refusal(RETENTION="PT10S", SSE_HEARTBEAT="PT11S")
    for part in ("ASYNC_JOBS_SSE_HEARTBEAT", "0:00:11", "ASYNC_JOBS_RETENTION", "0:00:10", "for example"):
        assert part in message
    configure(RETENTION="PT10S", SSE_HEARTBEAT="PT10S")
    assert Settings.from_mapping({"ASYNC_JOBS_RETENTION": "PT14S"}).sse_heartbeat == timedelta(seconds=14)


# Windows


def test_a_window_is_not_longer_than_the_retention() -> None:
    for settings, name in (
        ({"FRESHNESS_DEFAULT_WINDOW": "PT61M"}, "ASYNC_JOBS_FRESHNESS_DEFAULT_WINDOW"),
        ({"FRESHNESS_PER_TYPE": {"accounts": "PT61M"}}, "ASYNC_JOBS_FRESHNESS_PER_TYPE"),
    ):
        message = refusal(FRESHNESS_ENABLED=True, **settings)
        for part in (name, "1:01:00", "ASYNC_JOBS_RETENTION", "1:00:00", "for example"):
            assert part in message
        configure(**settings)
    configure(FRESHNESS_ENABLED=True, FRESHNESS_DEFAULT_WINDOW=HOUR, FRESHNESS_PER_TYPE={"accounts": HOUR})


def test_a_handlers_window_is_checked_at_init_app() -> None:
    jobs = AsyncJobs()
    jobs.register("accounts", lambda: None, freshness="PT61M")
    message = refusal(jobs, FRESHNESS_ENABLED=True)
    assert "'accounts'" in message
    assert "1:01:00" in message
    configure(jobs)


def test_the_window_of_a_handler_that_is_registered_later_is_checked_too() -> None:
    jobs = configure(FRESHNESS_ENABLED=True)
    with pytest.raises(ConfigurationError, match="'accounts'"):
        jobs.register("accounts", lambda: None, freshness=HOUR + timedelta(seconds=1))
    jobs.register("accounts", lambda: None, freshness=HOUR)
