"""The marker `needs(program, …)`: skip where a program is missing, and say so at the end of the run."""

import shutil
from collections import defaultdict

import pytest

PREFIX = "needs the program "


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "needs(program, ...): skip where an external program is missing")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose program is not in PATH."""
    for marker in item.iter_markers("needs"):
        for program in marker.args:
            if shutil.which(program) is None:
                pytest.skip(PREFIX + program)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what could not run for want of a program."""
    missing = defaultdict(list)
    for report in terminalreporter.stats.get("skipped", []):
        _, _, reason = report.longrepr
        if PREFIX in reason:
            missing[reason.rpartition(PREFIX)[2]].append(report.nodeid)
    if missing:
        terminalreporter.section("could not run")
    for program, tests in sorted(missing.items()):
        terminalreporter.line(f"{program} is missing: {len(tests)} tests")
        for test in tests:
            terminalreporter.line(f"    {test}")
