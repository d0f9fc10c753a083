"""JSON kept exactly: numbers keep their decimal text, and equal values have one fingerprint.

The standard encoder and decoder take numbers through binary floating point, which changes `19.99`, `2^53+1` as a
float, or `1e400`. Here a number is an `int` or a `Decimal` from the request to the handler and back.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from math import inf
from typing import Any, Final

EMPTY: Final = "{}"
DEEPEST: Final = 100
LONGEST_NUMBER: Final = 4_300
"""Digits before or after the point, the interpreter's own limit on integers: `int(1e999999999)` takes for ever."""

_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode
_unstorable = re.compile("[\x00\ud800-\udfff]")


class NotJson(ValueError):
    """The text or the value cannot be read or written as JSON that every supported database holds."""


class Unstorable(NotJson):
    """The value holds text that a database cannot store: NUL or a lone surrogate."""


def parse(text: str) -> Any:
    """Read JSON: objects, lists, text, booleans, None, `int`, and `Decimal` for any other number.

    Raises:
        Unstorable: Some text holds NUL or a lone surrogate.
        NotJson: It is not JSON (RFC 8259), is nested deeper than 100, or has a number that is too long.
    """
    value = _decoded(text)
    _text(value)
    return value


def read(text: str) -> tuple[Any, str]:
    """Read JSON as `parse` does, and return the value with its fingerprint, which is made in the same pass."""
    value = _decoded(text)
    return value, fingerprint(value)


def _decoded(text: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
    except NotJson:
        raise
    except (ValueError, RecursionError, InvalidOperation) as error:
        raise NotJson("the text is not JSON") from error


class TooLong(NotJson):
    """The text would be longer than the limit; the rest of the value was not looked at."""


def encode(value: Any, limit: int | None = None) -> str:
    """Write `value` as JSON: the order of members and the decimal text of numbers stay as they are.

    Stops as soon as the text is longer than `limit` characters, if there is one.

    Takes mappings with text keys, lists, tuples, text, booleans, None, `int`, finite `float` and `Decimal`.

    Raises:
        TooLong: See above.
        Unstorable: Some text holds NUL or a lone surrogate.
        NotJson: Anything else: NaN, an infinity, bytes, a date, a set, a cycle, nesting deeper than 100.
    """
    return _text(value, limit=inf if limit is None else limit)


def is_storable(text: str) -> bool:
    """Return whether every supported database can hold `text`: not with NUL or a lone surrogate."""
    return not _unstorable.search(text)


def fingerprint(value: Any) -> str:
    """Return a digest that is the same for JSON values that are equal, in the manner of RFC 8785.

    The order of members does not matter, that of lists does; `45`, `45.0` and `45.00` are one number.
    """
    return digest(_text(value, canonical=True))


def digest(text: str) -> str:
    """Return 128 bits of the SHA-256 of `text` in 22 characters: keys stand in rows, indexes and the WAL."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:16]).decode().rstrip("=")


def number(text: str) -> int:
    """Return a signed 64-bit number that stands for `text`, for advisory locks."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], signed=True)


def _refuse_constant(name: str) -> Any:
    raise NotJson(f"{name} is not JSON")


class _Writer:
    """Collects the text of one value, and gives up as soon as that is longer than `limit` characters."""

    def __init__(self, *, canonical: bool = False, limit: float = inf) -> None:
        self.parts: list[str] = []
        self._canonical = canonical
        self._limit = self._left = limit

    def write(self, value: Any, depth: int = 0) -> None:
        if depth >= DEEPEST and isinstance(value, Mapping | list | tuple):
            raise NotJson(f"the value is nested deeper than {DEEPEST}")
        match value:
            case None | True | False:
                self._add(json.dumps(value))
            case str():
                self._add(_string(value))
            case int() | float() | Decimal():
                self._add(_canonical_number(value) if self._canonical else _number(value))
            case Mapping():
                self._object(value, depth)
            case list() | tuple():
                self._array(value, depth)
            case _:
                raise NotJson(f"a value of type {type(value).__name__} is not JSON")

    def _object(self, value: Mapping[Any, Any], depth: int) -> None:
        if not all(isinstance(key, str) for key in value):
            raise NotJson("the keys of a JSON object are text")
        self._add("{")
        for index, key in enumerate(sorted(value) if self._canonical else value):
            self._add(f"{',' if index else ''}{_string(key)}:")
            self.write(value[key], depth + 1)
        self._add("}")

    def _array(self, value: Sequence[Any], depth: int) -> None:
        self._add("[")
        for index, item in enumerate(value):
            if index:
                self._add(",")
            self.write(item, depth + 1)
        self._add("]")

    def _add(self, text: str) -> None:
        self._left -= len(text)
        if self._left < 0:
            raise TooLong(f"the text is longer than {self._limit} characters")
        self.parts.append(text)


def _text(value: Any, **options: Any) -> str:
    writer = _Writer(**options)
    writer.write(value)
    return "".join(writer.parts)


def _string(text: str) -> str:
    if _unstorable.search(text):
        raise Unstorable("text with NUL or a lone surrogate cannot be stored")
    return _quoted(text)


def _number(value: float | Decimal) -> str:
    try:
        if isinstance(value, int):
            return str(int(value))
        if isinstance(value, float):
            value = Decimal(repr(float(value)))
    except ValueError as error:  # the interpreter limits the digits of an int that it converts
        raise NotJson(f"a number has more than {LONGEST_NUMBER} digits") from error
    if not value.is_finite():
        raise NotJson(f"{value} is not JSON")
    if value and abs(value.adjusted()) >= LONGEST_NUMBER:
        raise NotJson(f"a number has more than {LONGEST_NUMBER} digits")
    return str(value)


def _canonical_number(value: float | Decimal) -> str:
    sign, digits, exponent = Decimal(_number(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    significant = text.rstrip("0")
    if not significant:
        return "0"
    return f"{'-' if sign else ''}{significant}e{exponent + len(text) - len(significant)}"
