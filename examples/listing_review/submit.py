"""Have a catalogue reviewed, wait for the end and print what came out.

    python -m examples.listing_review.submit catalogue.json [--url URL] [--key KEY] [--resubmit-failed]

The catalogue is a JSON list of listings, each with a `sku`. Without `--key` the key is made of the file's text, so
that the same file is reviewed once, however often this is run; one that broke off is taken up again. With
`--resubmit-failed` the listings that failed, and only those, are sent once more, under a key of their own.

Exit code 0: every listing has a review; 1: some have none; 2: the server did not take the catalogue.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping
from http.client import HTTPException
from itertools import count
from pathlib import Path
from typing import Any

from examples.listing_review.client import Client, Refused

TYPE = "review"
DEFAULT_URL = "http://127.0.0.1:5000"
SEPARATORS = ", \t\r\n"

Items = dict[str, dict[str, Any]]


def main() -> int:
    """Run for the arguments of the command line and return the exit code."""
    arguments = parser().parse_args()
    try:
        text = arguments.catalogue.read_text(encoding="utf-8")
        key = arguments.key or f"catalogue-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        items = run(Client(arguments.url), key, listings_of(text), resubmit=arguments.resubmit_failed)
    except (Refused, HTTPException, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    report(items)
    return 1 if failed(items) else 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="submit", description="Have a catalogue reviewed.")
    made.add_argument("catalogue", type=Path)
    made.add_argument("--url", default=DEFAULT_URL, help="the root of the application (%(default)s)")
    made.add_argument("--key", help="the Idempotency-Key; by default it is made of the file's text")
    made.add_argument("--resubmit-failed", action="store_true", help="send once more what failed, and only that")
    return made


def listings_of(text: str) -> dict[str, str]:
    """Return the JSON text of each listing by its SKU, as it stands in the catalogue: 45.00 stays 45.00.

    Raises:
        ValueError: The text is no JSON list of listings, each with a SKU of its own.
    """
    listings: dict[str, str] = {}
    catalogue = json.loads(text)
    position = text.find("[") + 1
    for listing in catalogue if isinstance(catalogue, list) else ():
        while text[position] in SEPARATORS:
            position += 1
        start = position
        _, position = json.JSONDecoder().raw_decode(text, start)
        listings[str(listing.get("sku", "") if isinstance(listing, dict) else "")] = text[start:position]
    if not listings or "" in listings or len(listings) < len(catalogue):
        raise ValueError("the catalogue is no list of listings, each with a sku of its own")
    return listings


def run(client: Client, key: str, listings: Mapping[str, str], *, resubmit: bool) -> Items:
    """Submit, wait, and return the newest item of each listing.

    A round that was over before answers 200, so the first round of failed listings that answers 202 is the one that
    this call has begun, or taken up again.
    """
    items, _ = review(client, key, listings)
    for number in count(2):
        if not resubmit or not (again := {sku: listings[sku] for sku in failed(items)}):
            break
        newer, was_over = review(client, f"{key}-{number}", again)
        items |= newer
        if not was_over:
            break
    return items


def review(client: Client, key: str, listings: Mapping[str, str]) -> tuple[Items, bool]:
    """Submit one batch and return its items when it has ended, and whether it had ended before."""
    answer = client.submit(TYPE, key, listings)
    print(f"{len(listings)} listings, key {key}: {answer.body['statusUrl']}", flush=True)
    summary = client.wait(answer.body["statusUrl"])
    return {item["itemId"]: item for item in client.items(summary["itemsUrl"])}, answer.status == 200


def failed(items: Items) -> list[str]:
    """Return the SKUs of the listings without a review, in the order of the catalogue."""
    return [sku for sku, item in items.items() if item["status"] != "COMPLETED"]


def report(items: Items) -> None:
    """Print a line for each listing, and one for all."""
    width = max(map(len, items))
    for sku, item in items.items():
        print(f"{sku:{width}}  {line(item)}")
    print(f"{len(items) - len(failed(items))} reviewed, {len(failed(items))} not")


def line(item: Mapping[str, Any]) -> str:
    """Return the score and the findings of an item, or why there is none."""
    if item["status"] == "COMPLETED":
        findings = ", ".join(finding["code"] for finding in item["result"]["findings"])
        return f"{item['result']['score']:>3}  {findings or 'nothing found'}"
    error = item["error"] or {}
    return f"  –  {error.get('code', item['status'])}: {error.get('title', 'not reviewed')}"


if __name__ == "__main__":
    sys.exit(main())
