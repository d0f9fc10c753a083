"""The library's Alembic versions, and running them without an Alembic environment of the application's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect
from sqlalchemy.schema import CreateSchema

from flask_async_jobs.models import metadata_for

VERSIONS: Final = Path(__file__).parent / "versions"
BRANCH: Final = "async_jobs"
VERSION_TABLE: Final = "async_jobs_alembic_version"


class Migrator:
    """Moves the library's tables between versions, and notes the version in a table of its own.

    For applications without Alembic; those with it name `VERSIONS` in their `version_locations` instead.
    """

    def __init__(self, engine: Engine, schema: str | None = None) -> None:
        self._engine = engine
        self._schema = schema
        config = Config()
        config.set_main_option("script_location", str(VERSIONS.parent).replace("%", "%%"))
        self._config = config
        self._script = ScriptDirectory.from_config(config)

    def upgrade(self, revision: str = "head") -> None:
        """Go up to `revision`."""
        self._run(lambda current, context: self._script._upgrade_revs(revision, current))

    def downgrade(self, revision: str = "-1") -> None:
        """Go down to `revision`: one version by default, `base` for all."""
        self._run(lambda current, context: self._script._downgrade_revs(revision, current))

    def current(self) -> str | None:
        """Return the version of the database, or None."""
        found: list[str] = []

        def note(current: Any, context: Any) -> list[Any]:
            found.extend(current)
            return []

        self._run(note)
        return found[0] if found else None

    def _run(self, steps: Any) -> None:
        with (
            EnvironmentContext(self._config, self._script, fn=steps) as environment,
            self._engine.begin() as connection,
        ):
            if self._schema is not None and connection.dialect.name == "postgresql":
                _create_missing(connection, self._schema)
            environment.configure(
                connection=connection,
                target_metadata=metadata_for(self._schema),
                version_table=VERSION_TABLE,
                version_table_schema=self._schema,
            )
            environment.run_migrations()


def _create_missing(connection: Connection, schema: str) -> None:
    """Create the schema: the version table stands in it, before any migration runs."""
    if not inspect(connection).has_schema(schema):
        connection.execute(CreateSchema(schema, if_not_exists=True))
