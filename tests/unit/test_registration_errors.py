"""What cannot be a handler, an engine or an application is refused at once, and the message says what to do."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from flask import Flask
from marshmallow import Schema
from sqlalchemy import create_engine

from flask_async_jobs import AsyncJobs, AsyncJobsError, ConfigurationError, JobContext

ID = "3f0b8a54-6f0e-4d0c-9a57-0a8f4f6f2c11"
URL = "sqlite:////nowhere/none.sqlite"


def refusal(type: Any, function: Any = lambda: None, **options: Any) -> str:
    with pytest.raises(ConfigurationError) as refused:
        AsyncJobs().register(type, function, **options)
    assert isinstance(refused.value, AsyncJobsError)
    return str(refused.value)


# Types


def test_a_type_has_one_handler() -> None:
    jobs = AsyncJobs()
    jobs.register("accounts", first)
    with pytest.raises(ConfigurationError, match=r"'accounts' already has a handler: first"):
        jobs.register("accounts", lambda: None)
    jobs.register("Accounts", lambda: None)


def first() -> None: ...


@pytest.mark.parametrize(
    "type",
    ["", " ", "a b", "a/b", "größe", "x" * 65, "a\n", "\0", None, 1, b"x", ID, ID.upper()],
)
def test_a_type_is_a_short_plain_name_and_no_id(type: Any) -> None:
    message = refusal(type)
    assert repr(type) in message
    assert "1 to 64 letters" in message


@pytest.mark.parametrize("type", ["a", "x" * 64, "A-z_0.9", ".", "--", "1", "3f0b8a546f0e4d0c9a570a8f4f6f2c11"])
def test_any_other_name_is_a_type(type: str) -> None:
    jobs = AsyncJobs()
    jobs.register(type, lambda: None)
    assert [handler.type for handler in jobs._registry] == [type]


# Options


async def coroutine_of(job: Any) -> str:
    return "/"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("detached", 1),
        ("detached", None),
        ("payload_schema", dict),
        ("payload_schema", {"a": 1}),
        ("freshness", 0),
        ("freshness", "soon"),
        ("freshness", timedelta(seconds=-1)),
        ("coalesce", "yes"),
        ("processing_timeout", 0),
        ("processing_timeout", True),
        ("require_idempotency_key", "no"),
        ("redirect", "/listings"),
        ("redirect", None),
        ("result_url", 17),
        ("result_url", ""),
        ("result_url", "listings/{job_id}"),
        ("result_url", "//elsewhere/{job_id}"),
        ("result_url", "ftp://elsewhere/{job_id}"),
        ("result_url", "https://{job_id}"),
        ("result_url", "/listings/{id}"),
        ("result_url", "/listings/{job_id!r}"),
        ("result_url", "/listings/{job_id"),
        ("result_url", "/listings/<job_id>"),
        ("result_url", "/list ings"),
        ("result_url", "/a\r\nb"),
        ("result_url", "{job_id}"),
        ("result_url", coroutine_of),
    ],
)
def test_the_value_of_an_option_is_checked(option: str, value: Any) -> None:
    message = refusal("accounts", **{option: value})
    assert f"'accounts': {option} is {value!r}" in message
    assert "expected" in message


def test_an_unknown_option_is_named_beside_the_known_ones() -> None:
    message = refusal("accounts", colesce=True)
    for part in ("'accounts'", "'colesce'", "coalesce", "freshness"):
        assert part in message


def test_a_schema_may_be_a_class_or_an_object() -> None:
    jobs = AsyncJobs()
    jobs.register("one", lambda ctx, payload: None, payload_schema=Schema)
    jobs.register("two", lambda ctx, payload: None, payload_schema=Schema(many=True))
    schemas = [handler.options.payload_schema for handler in jobs._registry]
    assert [(isinstance(schema, Schema), schema.many) for schema in schemas] == [(True, False), (True, True)]


def test_nothing_is_registered_by_a_refusal() -> None:
    jobs = AsyncJobs()
    with pytest.raises(ConfigurationError):
        jobs.register("accounts", lambda: None, detached="yes")  # type: ignore[arg-type]
    jobs.register("accounts", lambda: None)


# Signatures


async def coroutine() -> None: ...


async def generator() -> Any:
    yield


class Routine:
    def __call__(self, ctx: JobContext) -> None: ...

    def method(self, ctx: JobContext, payload: Any) -> None: ...

    async def asynchronous(self) -> None: ...


class AsyncRoutine:
    async def __call__(self, ctx: JobContext) -> None: ...


@pytest.mark.parametrize(
    "function",
    [lambda a, b, c: None, lambda *, a: None, lambda a, *, b: None, lambda a, b, c, *d: None],
)
def test_a_signature_that_fits_none_of_the_three_is_refused(function: Any) -> None:
    assert "(), (ctx) or (ctx, payload)" in refusal("accounts", function)


@pytest.mark.parametrize(
    "function",
    [coroutine, generator, Routine().asynchronous, partial(coroutine), AsyncRoutine()],
    ids=["function", "generator", "method", "partial", "object"],
)
def test_an_asynchronous_handler_is_refused(function: Any) -> None:
    assert "asynchronous" in refusal("accounts", function)


def test_what_cannot_be_called_is_refused() -> None:
    for function in (None, 1, "run"):
        assert "'accounts'" in refusal("accounts", function)


@pytest.mark.parametrize(
    "function",
    [lambda: None, lambda ctx: None, lambda ctx, payload: None, lambda ctx=None, payload=None, other=None: None,
     lambda *args: None, lambda ctx, *, more=1: None, Routine(), Routine().method, partial(lambda a, ctx: None, 1)],
)  # fmt: skip
def test_any_plain_callable_that_fits_is_taken(function: Any) -> None:
    jobs = AsyncJobs()
    jobs.register("accounts", function)
    assert "accounts" in jobs._registry


def test_the_decorator_leaves_the_function_as_it_is() -> None:
    jobs = AsyncJobs()
    assert jobs.handler("accounts")(first) is first


def test_a_handler_comes_before_the_first_request() -> None:
    jobs, app = AsyncJobs(), Flask("consumer")
    app.config.update({"TESTING": True, "ASYNC_JOBS_DATABASE_URL": URL})
    jobs.init_app(app)
    jobs.register("early", lambda: None)
    app.test_client().get("/nothing")
    with pytest.raises(RuntimeError, match="'late' is registered after the first request"):
        jobs.register("late", lambda: None)


# Engines


def test_without_an_engine_the_message_says_how_to_give_one() -> None:
    with pytest.raises(ConfigurationError) as refused:
        AsyncJobs().init_app(Flask("consumer"))
    for part in ("Flask-SQLAlchemy", "engine=", "ASYNC_JOBS_DATABASE_URL"):
        assert part in str(refused.value)


def test_two_databases_are_one_too_many() -> None:
    app = Flask("consumer")
    app.config["ASYNC_JOBS_DATABASE_URL"] = URL
    with pytest.raises(ConfigurationError, match="ASYNC_JOBS_DATABASE_URL and engine="):
        AsyncJobs().init_app(app, engine=create_engine(URL))


def test_init_app_connects_to_nothing_and_asks_for_no_engine() -> None:
    def engine() -> Any:
        raise AssertionError("asked for the engine")

    AsyncJobs().init_app(Flask("consumer"), engine=engine)
    AsyncJobs().init_app(Flask("consumer"), engine=create_engine(URL))


def test_a_refused_application_is_left_as_it_was() -> None:
    app = Flask("consumer")
    app.config.update({"ASYNC_JOBS_DATABASE_URL": URL, "ASYNC_JOBS_RETENTION": 0})
    jobs = AsyncJobs()
    with pytest.raises(ConfigurationError):
        jobs.init_app(app)
    app.config["ASYNC_JOBS_RETENTION"] = 3600
    jobs.init_app(app)


def test_a_refused_window_leaves_the_application_as_it_was() -> None:
    app, jobs = Flask("consumer"), AsyncJobs()
    jobs.register("accounts", lambda: None, freshness="PT2H")
    app.config.update({"ASYNC_JOBS_DATABASE_URL": URL, "ASYNC_JOBS_FRESHNESS_ENABLED": True})
    with pytest.raises(ConfigurationError):
        jobs.init_app(app)
    app.config["ASYNC_JOBS_RETENTION"] = "PT2H"
    jobs.init_app(app)


def test_an_in_memory_database_cannot_run_jobs() -> None:
    jobs, app = AsyncJobs(), Flask("consumer")
    app.config["ASYNC_JOBS_DATABASE_URL"] = "sqlite://"
    jobs.init_app(app)
    with pytest.raises(ConfigurationError, match="use a file"):
        jobs.start(app)


def test_another_database_is_refused_when_it_is_first_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, app = AsyncJobs(), Flask("consumer")
    foreign = create_engine("sqlite://")
    monkeypatch.setattr(foreign.dialect, "name", "oracle")
    jobs.init_app(app, engine=foreign)
    with pytest.raises(ConfigurationError, match="PostgreSQL"):
        jobs.start(app)
