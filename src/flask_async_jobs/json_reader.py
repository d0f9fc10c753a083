"""Reading a JSON document in steps, so that a part of it can be kept as the very text it was sent as."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from flask_async_jobs.payloads import NotJson

_space: Final = re.compile(r"[ \t\n\r]*")


def _refuse_constant(name: str) -> Any:
    raise NotJson(f"{name} is not JSON")


_values: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant)
_shapes: Final = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_refuse_constant)
"""Finds where a value ends; what its numbers are is asked when the text of it is read."""


class JsonReader:
    """Goes through one JSON text (RFC 8259) from its beginning. Each method raises `NotJson` where it is none."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def next(self) -> str:
        """Return the character that comes next, behind white space; `''` at the end."""
        match = _space.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return self._text[self._at : self._at + 1]

    def value(self) -> Any:
        """Read the value that comes next."""
        return self._decoded(_values)

    def text(self) -> str:
        """Pass the value that comes next, and return its text."""
        self.next()
        start = self._at
        self._decoded(_shapes)
        return self._text[start : self._at]

    def members(self) -> Iterator[str]:
        """Give the name of each member of the object that comes next; its value has to be read before going on."""
        for _ in self._parts("{", "}"):
            if self.next() != '"':
                raise NotJson("the name of a member is text")
            name: str = self.value()
            self._take(":")
            yield name

    def elements(self) -> Iterator[int]:
        """Give the index of each element of the list that comes next; it has to be read before going on."""
        return self._parts("[", "]")

    def end(self) -> None:
        """Make sure that nothing follows."""
        if self.next():
            raise NotJson("something follows the value")

    def _parts(self, first: str, last: str) -> Iterator[int]:
        self._take(first)
        index = 0
        while index or self.next() != last:
            yield index
            index += 1
            if self.next() != ",":
                break
            self._take(",")
        self._take(last)

    def _take(self, character: str) -> None:
        if self.next() != character:
            raise NotJson(f"{character} is missing")
        self._at += 1

    def _decoded(self, decoder: json.JSONDecoder) -> Any:
        self.next()
        try:
            value, self._at = decoder.raw_decode(self._text, self._at)
        except NotJson:
            raise
        except (ValueError, RecursionError, InvalidOperation) as error:
            raise NotJson("the text is not JSON") from error
        return value
