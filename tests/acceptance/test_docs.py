"""The documentation runs: a block below `<!-- file: NAME -->` is a file, one below `<!-- run -->` is run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"<!-- (file: (?P<name>\S+)|run) -->\n```(?P<lang>\w*)\n(?P<text>.*?)^```$", re.S | re.M)
IMPORT = "import runpy, sys; sys.path.insert(0, ''); runpy.run_path(sys.argv[1], run_name='block')"
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])


def command_of(block: re.Match[str], folder: Path) -> list[str]:
    """Return how a block is tried; a block that is a file is written first."""
    python = [sys.executable, "-W", "error"]
    if block["name"] is None:
        return [*python, "-c", block["text"]] if block["lang"] == "python" else ["bash", "-euc", block["text"]]
    file = folder / block["name"]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block["text"])
    if file.name.startswith("test_"):
        return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", block["name"]]
    return [*python, "-c", IMPORT, block["name"]] if block["lang"] == "python" else ["true"]


@pytest.mark.parametrize(
    "document", [d for d in documents() if BLOCK.search(d.read_text())], ids=lambda d: str(d.relative_to(ROOT))
)
def test_the_blocks_of_a_document_run_in_their_order(document: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for block in BLOCK.finditer(document.read_text()):
        command = command_of(block, tmp_path)
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment)
        assert run.returncode == 0, f"{block['text']}\n{run.stdout}\n{run.stderr}"


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in documents()
        for target in LINK.findall(document.read_text())
        if not (document.parent / target).exists()
    ]
    assert broken == []
