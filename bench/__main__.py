"""`make bench`: each figure with its floor, measured in one run, and its goal; exits with 1 if one is missed."""

from __future__ import annotations

import sys

from bench import batches, in_process, over_http, size, streams
from tests.servers.postgres import PostgresServer

SECTIONS = {
    "http": over_http.figures,
    "process": in_process.figures,
    "size": size.figures,
    "streams": streams.figures,
    "batches": batches.figures,
}


def main(wanted: list[str]) -> int:
    """Run the sections that are named, or all of them."""
    missed = 0
    with PostgresServer(fsync="on") as postgres:
        print(f"{'figure':34}{'measured':>12}  {'goal':>10}")
        for name in wanted or SECTIONS:
            for figure in SECTIONS[name](postgres):
                print(figure, flush=True)
                missed += not figure.holds
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
