"""The short form of `make chaos`: each fault once under load, and the checker finds nothing.

How fast the throughput is back is for the long form: a busy machine would make this one fail for no reason.
"""

from collections.abc import Iterator

import pytest

from chaos.__main__ import described
from chaos.scenarios import SCENARIOS, SERVER_OPTIONS, SHORT, run
from tests.servers.postgres import PostgresServer

pytestmark = pytest.mark.acceptance


@pytest.fixture(scope="module")
def careful_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of these tests alone that keeps what it has committed."""
    with PostgresServer(**SERVER_OPTIONS) as server:
        yield server


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_job_is_lost_doubled_or_left_when_this_breaks_under_load(
    careful_postgres: PostgresServer, name: str
) -> None:
    report = run(name, careful_postgres, SHORT)
    print(described(report))
    assert report.findings == []
    assert report.jobs > 0
