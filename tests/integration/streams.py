"""Reading server-sent events as a browser does (WHATWG HTML, section 9.2.6)."""

import json
import re
from typing import Any, NamedTuple


class Block(NamedTuple):
    """One event: its name, its id if it has one, its data, and the `retry` that came with it."""

    event: str
    id: str | None
    data: Any
    retry: str | None


def blocks(text: str) -> list[Block]:
    """Return the events of a stream, comments left out. Any line end counts, as it does for a browser."""
    found = []
    fields: dict[str, str] = {}
    for line in re.split(r"\r\n|\r|\n", text):
        if not line and "data" in fields:
            found.append(Block(fields["event"], fields.get("id"), json.loads(fields["data"]), fields.get("retry")))
        if not line:
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            assert name not in fields, "one line of data"
            fields[name] = value.removeprefix(" ")
    return found
