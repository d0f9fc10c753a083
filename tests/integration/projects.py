"""A consumer's Alembic project, made in a folder and run in this process."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Column, Engine, ForeignKey, Integer, MetaData, String, Table, create_engine, event

from flask_async_jobs.migrations import VERSIONS

ENV = """
from alembic import context

config = context.config
options = config.attributes["options"]
with config.attributes["engine"].connect() as connection:
    context.configure(connection=connection, **options)
    with context.begin_transaction():
        context.run_migrations()
"""
TEMPLATE = '''"""${message}"""
from alembic import op
import sqlalchemy as sa
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}

def upgrade():
    ${upgrades if upgrades else "pass"}

def downgrade():
    ${downgrades if downgrades else "pass"}
'''
CONVENTION = {
    "ix": "ix_%(column_0_label)s_conv",
    "uq": "uq_%(table_name)s_%(column_0_name)s_conv",
    "ck": "ck_%(table_name)s_%(constraint_name)s_conv",
    "fk": "fk_%(table_name)s_%(column_0_name)s_conv",
    "pk": "pk_%(table_name)s_conv",
}


def consumer_metadata(convention: bool = True) -> MetaData:
    """Return the tables of a consumer that names its constraints by a convention."""
    metadata = MetaData(naming_convention=CONVENTION if convention else None)
    Table("customer", metadata, Column("id", Integer, primary_key=True), Column("name", String(40), unique=True))
    Table(
        "invoice", metadata, Column("id", Integer, primary_key=True), Column("customer", ForeignKey("customer.id"))
    )
    return metadata


class Project:
    """An Alembic project with `version_locations` of its own, and the library's if wanted."""

    def __init__(self, folder: Path, engine: Engine, target: list[MetaData], *, library: bool, **options) -> None:
        self.versions = folder / "versions"
        self.versions.mkdir(parents=True)
        (folder / "env.py").write_text(ENV)
        (folder / "script.py.mako").write_text(TEMPLATE)
        self.config = Config()
        self.config.set_main_option("script_location", str(folder))
        self.config.set_main_option("path_separator", "newline")
        locations = [str(self.versions), *([str(VERSIONS)] if library else [])]
        self.config.set_main_option("version_locations", "\n".join(locations))
        self.config.attributes["engine"] = engine
        self.config.attributes["options"] = {"target_metadata": target, **options}

    def revise(self, message: str) -> str:
        """Autogenerate a revision into the project's own folder and return its text."""
        first = not list(self.versions.glob("*.py"))
        script = command.revision(
            self.config,
            message,
            autogenerate=True,
            head="base" if first else "project@head",
            branch_label="project" if first else None,
            version_path=str(self.versions),
        )
        return Path(script.path).read_text()

    def upgrade(self) -> None:
        """Go up to every head."""
        command.upgrade(self.config, "heads")

    def downgrade_library(self) -> None:
        """Take the library's tables away."""
        command.downgrade(self.config, "async_jobs@base")


def project_engine(url: str, schema: str | None = None) -> Engine:
    """Return an engine; on SQLite with `schema` attached, as it is a database of its own there."""
    engine = create_engine(url)
    if schema and engine.dialect.name == "sqlite":
        attached = f"{engine.url.database}.{schema}"
        event.listen(
            engine, "connect", lambda connection, _: connection.execute(f"ATTACH '{attached}' AS {schema}").close()
        )
    return engine
