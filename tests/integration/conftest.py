"""What every integration test leaves behind is stopped before its database goes away."""

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from tests.integration.processes import made


@pytest.fixture
def engine(engine: Engine) -> Iterator[Engine]:
    """The engine of the test, whose applications are stopped first."""
    yield engine
    stop_all()


def stop_all() -> None:
    """Stop every application that the test has made."""
    while made:
        jobs, app = made.pop()
        jobs.shutdown(app=app)
