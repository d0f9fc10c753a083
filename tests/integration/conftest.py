"""What every integration test leaves behind ends with it, and before its database goes away."""

import pytest

from tests.integration.processes import made


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Stop every application that the test has made, and let go of what its parameters were raised in."""
    while made:
        jobs, app = made.pop()
        jobs.shutdown(app=app)
    for value in item.callspec.params.values() if hasattr(item, "callspec") else ():
        if isinstance(value, BaseException):
            value.__traceback__ = value.__context__ = None
