"""JSON kept exactly: numbers keep their decimal text, and equal values have one fingerprint.

The standard encoder and decoder take numbers through binary floating point, which changes `19.99`, `2^53+1` as a
float, or `1e400`. Here a number is an `int` or a `Decimal` from the request to the handler and back.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

EMPTY: Final = "{}"
DEEPEST: Final = 100
LONGEST_NUMBER: Final = 4_300
"""Digits before or after the point, the interpreter's own limit on integers: `int(1e999999999)` takes for ever."""

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
    try:
        value = json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
        for _ in _write(value, canonical=False):
            pass
    except NotJson:
        raise
    except (ValueError, RecursionError, InvalidOperation) as error:
        raise NotJson("the text is not JSON") from error
    return value


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
    if limit is None:
        return "".join(_write(value, canonical=False))
    parts, length = [], 0
    for part in _write(value, canonical=False):
        parts.append(part)
        length += len(part)
        if length > limit:
            raise TooLong(f"the text is longer than {limit} characters")
    return "".join(parts)


def fingerprint(value: Any) -> str:
    """Return a digest that is the same for JSON values that are equal, in the manner of RFC 8785.

    The order of members does not matter, that of lists does; `45`, `45.0` and `45.00` are one number.
    """
    return digest("".join(_write(value, canonical=True)))


def digest(text: str) -> str:
    """Return 128 bits of the SHA-256 of `text` in 32 hexadecimal digits: keys stand in rows and indexes."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def number(text: str) -> int:
    """Return a signed 64-bit number that stands for `text`, for advisory locks."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], signed=True)


def _refuse_constant(name: str) -> Any:
    raise NotJson(f"{name} is not JSON")


def _write(value: Any, *, canonical: bool, depth: int = 0) -> Iterator[str]:
    if depth >= DEEPEST and isinstance(value, Mapping | list | tuple):
        raise NotJson(f"the value is nested deeper than {DEEPEST}")
    match value:
        case None | True | False:
            yield json.dumps(value)
        case str():
            yield _string(value)
        case int() | float() | Decimal():
            yield _canonical_number(value) if canonical else _number(value)
        case Mapping():
            yield from _object(value, canonical=canonical, depth=depth)
        case list() | tuple():
            yield "["
            for index, item in enumerate(value):
                if index:
                    yield ","
                yield from _write(item, canonical=canonical, depth=depth + 1)
            yield "]"
        case _:
            raise NotJson(f"a value of type {type(value).__name__} is not JSON")


def _object(value: Mapping[Any, Any], *, canonical: bool, depth: int) -> Iterator[str]:
    if not all(isinstance(key, str) for key in value):
        raise NotJson("the keys of a JSON object are text")
    yield "{"
    for index, key in enumerate(sorted(value) if canonical else value):
        if index:
            yield ","
        yield _string(key)
        yield ":"
        yield from _write(value[key], canonical=canonical, depth=depth + 1)
    yield "}"


def _string(text: str) -> str:
    if _unstorable.search(text):
        raise Unstorable("text with NUL or a lone surrogate cannot be stored")
    return json.dumps(text, ensure_ascii=False)


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
