"""What an application costs before it serves: no document until somebody reads it, and no Alembic."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from apispec import APISpec
from sqlalchemy import create_engine

from tests.integration.apps import Site, TestJobs, serving

DOCUMENT = "/docs/openapi.json"


@pytest.fixture
def site(sqlite_url: str) -> Iterator[Site]:
    engine = create_engine(sqlite_url)
    with serving(TestJobs(), engine) as site:
        yield site
    engine.dispose()


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are added to documents."""
    paths: list[str] = []
    add = APISpec.path

    def note(spec: APISpec, **about: object) -> APISpec:
        paths.append(str(about["rule"]))
        return add(spec, **about)

    monkeypatch.setattr(APISpec, "path", note)
    return paths


def test_the_document_is_made_when_it_is_asked_for_and_once(described: list[str], site: Site) -> None:
    site.submit()
    assert described == []
    first = site.get(DOCUMENT).json
    added = len(described)
    assert added >= len(first["paths"]) > 10
    assert site.get(DOCUMENT).json == first
    assert len(described) == added


def test_those_who_ask_for_the_document_at_once_get_all_of_it(described: list[str], site: Site) -> None:
    together = Barrier(8)

    def ask(_: int) -> str:
        together.wait()
        return site.app.test_client().get(DOCUMENT).text

    with ThreadPoolExecutor(8) as clients:
        answers = set(clients.map(ask, range(8)))
    assert len(answers) == 1
    assert described.count("/jobs/quick") == described.count("/batches/quick") == 1


def test_a_document_that_cannot_be_made_is_not_served_by_halves(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(spec: APISpec, tag: object) -> None:
        raise ValueError

    monkeypatch.setattr(APISpec, "tag", refuse)
    assert [site.get(DOCUMENT).status_code for _ in range(2)] == [500, 500]


def test_alembic_is_imported_by_the_commands_that_need_it_and_by_nothing_else() -> None:
    program = "import sys, flask_async_jobs; sys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
