"""Every problem that a client can meet is explained."""

import re
from pathlib import Path

from flask_async_jobs.api.problems import TITLES

PAGE = Path(__file__).parents[2] / "docs" / "problems.md"


def test_the_page_on_problems_has_an_entry_with_the_status_of_each():
    entries = dict(re.findall(r"^## (\S+)\n\n(\d{3})", PAGE.read_text(), re.MULTILINE))
    assert {slug: status for slug, status in entries.items() if slug in TITLES} == {
        slug: str(status) for slug, (status, _) in TITLES.items()
    }
