"""The handlers that an application registered, by type."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flask_async_jobs import payloads
from flask_async_jobs.errors import ConfigurationError, UnknownType
from flask_async_jobs.options import HandlerOptions
from flask_async_jobs.records import TypeRules
from flask_async_jobs.states import is_type_name

HandlerFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered routine: the callable, its options, and how many of `(ctx, payload)` it takes."""

    type: str
    function: HandlerFunction
    options: HandlerOptions
    arity: int

    def call(self, *arguments: Any) -> Any:
        """Call the routine with as many of the arguments as it takes."""
        return self.function(*arguments[: self.arity])

    def load(self, text: str | None) -> Any:
        """Return what the type's schema loads from the stored JSON, or None for a type without a schema."""
        schema = self.options.payload_schema
        return None if schema is None else schema.load(payloads.parse(text or payloads.EMPTY))

    @property
    def rules(self) -> TypeRules:
        """What the statements of the job store have to know of this type."""
        options = self.options
        return TypeRules(
            self.type, options.detached, options.max_attempts, options.processing_timeout, options.timeout
        )


class HandlerRegistry:
    """Handlers by type. Fixed from the first request on, so that every request and worker sees the same ones."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self._observers: weakref.WeakKeyDictionary[Callable[[Handler], None], None] = weakref.WeakKeyDictionary()
        self._fixed = False

    def register(self, type: str, function: HandlerFunction, options: dict[str, Any]) -> None:
        """Add the handler of one type.

        Raises:
            ConfigurationError: The type is malformed or taken, an option makes no sense, or the callable takes
                anything but `()`, `(ctx)` or `(ctx, payload)`.
            RuntimeError: The application already served a request.
        """
        if self._fixed:
            raise RuntimeError(f"{type!r} is registered after the first request; register handlers at start-up")
        if not isinstance(type, str) or not is_type_name(type):
            raise ConfigurationError(
                f"{type!r} is not a type name: use 1 to 64 letters, digits, '.', '_' or '-', and no UUID"
            )
        if type in self._handlers:
            raise ConfigurationError(f"{type!r} already has a handler: {_name(self._handlers[type].function)}")
        handler = Handler(type, function, HandlerOptions.of(type, options), _arity(type, function))
        for observer in list(self._observers):
            observer(handler)
        self._handlers[type] = handler

    def get(self, type: str) -> Handler:
        """Return the handler of a type.

        Raises:
            UnknownType: There is none, or the name is malformed.
        """
        try:
            return self._handlers[type]
        except KeyError:
            raise UnknownType(type, malformed=not is_type_name(type)) from None

    def observe(self, observer: Callable[[Handler], None]) -> None:
        """Call `observer` with every handler, those already there and those to come; it may refuse one.

        It is kept by whoever gives it: what the registry of a module kept would live as long as the process, and
        with it each application that was ever made.
        """
        for handler in self:
            observer(handler)
        self._observers[observer] = None

    def fix(self) -> None:
        """Refuse registrations from now on."""
        self._fixed = True

    def rules(self) -> list[TypeRules]:
        """Return what the statements of the job store have to know, type by type."""
        return [handler.rules for handler in self]

    def __iter__(self) -> Iterator[Handler]:
        return iter(list(self._handlers.values()))

    def __contains__(self, type: object) -> bool:
        return type in self._handlers


def _arity(type: str, function: HandlerFunction) -> int:
    if not callable(function):
        raise ConfigurationError(f"{type!r}: {function!r} cannot be called; give a function")
    if _is_asynchronous(function) or _is_asynchronous(function.__class__.__call__):
        raise ConfigurationError(f"{type!r}: {_name(function)} is asynchronous; a handler is a plain callable")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise ConfigurationError(f"{type!r}: {_name(function)} has no signature; wrap it in a function") from None
    for arity in (2, 1, 0):
        try:
            signature.bind(*[None] * arity)
        except TypeError:
            continue
        return arity
    raise ConfigurationError(
        f"{type!r}: {_name(function)}{signature} cannot be called as (), (ctx) or (ctx, payload)"
    )


def _is_asynchronous(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _name(function: HandlerFunction) -> str:
    return getattr(function, "__qualname__", repr(function))
