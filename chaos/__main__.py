"""`python -m chaos [--short] [SCENARIO…]`: each fault under load, how fast the throughput is back, and the verdict.

Exits with 1 when the checker finds anything, in the long form also when the throughput came back too late.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from chaos.scenarios import GOAL, LONG, SCENARIOS, SERVER_OPTIONS, SHORT, Report, run
from tests.servers.postgres import PostgresServer

FINDINGS_SHOWN = 20
LOG_SHOWN = 6_000


def main(arguments: Sequence[str]) -> int:
    """Run the scenarios that are named, or all of them."""
    parser = argparse.ArgumentParser("chaos", description="Break things under load, and check every job.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--short", action="store_true", help="for CI: shorter, and the recovery time is not judged")
    options = parser.parse_args(arguments)
    if unknown := set(options.scenarios) - SCENARIOS.keys():
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    failed = 0
    with PostgresServer(**SERVER_OPTIONS) as postgres:
        for name in options.scenarios or SCENARIOS:
            report = run(name, postgres, SHORT if options.short else LONG)
            _print(described(report))
            failed += bool(report.findings) or not (options.short or report.recovered_in_time)
    return int(failed > 0)


def described(report: Report) -> str:
    """Return the lines of the report on one scenario."""
    recovery = "never" if report.recovery is None else f"{report.recovery:.2f} s"
    verdict = f"{len(report.findings)} FINDINGS" if report.findings else "sound"
    answers = ", ".join(f"{count} {status or 'broken'}" for status, count in report.answers.items())
    failures = ", ".join(f"{count} {code}" for code, count in report.codes.items()) or "none"
    attempts = f"{report.attempts} attempts, {report.overlaps} overlapping"
    lines = [
        f"{report.name}: {verdict}",
        f"  completed/s    before {report.before:.1f}, during {report.during:.1f}, after {report.after:.1f}",
        f"  back to 95 %   {recovery} (goal {GOAL:.0f} s){'' if report.recovered_in_time else ' MISSED'}",
        f"  answers        {answers}; slowest {report.slowest:.2f} s",
        f"  jobs           {report.jobs} in {attempts}; failed: {failures}",
        f"  log            {report.errors} errors",
    ]
    lines += [f"  ! {finding}" for finding in report.findings[:FINDINGS_SHOWN]]
    lines += report.stories
    if report.findings:
        lines.append(f"  the application's log ends:\n{report.log[-LOG_SHOWN:]}")
    return "\n".join(lines)


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
