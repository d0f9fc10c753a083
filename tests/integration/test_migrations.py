"""Every way to the tables leads to the same tables, and a consumer's autogenerate finds nothing to do."""

from uuid import uuid4

import pytest
from sqlalchemy import inspect, text

from flask_async_jobs import AsyncJobs
from flask_async_jobs.ddl import ddl
from flask_async_jobs.migrations import Migrator
from flask_async_jobs.models import metadata_for
from tests.integration.catalogue import catalogue
from tests.integration.projects import Project, consumer_metadata, project_engine

jobs = AsyncJobs()
with_and_without_schema = pytest.mark.parametrize("schema", [None, "work"])


@pytest.fixture
def fresh(empty_database_url, schema):
    engine = project_engine(empty_database_url, schema)
    yield engine
    engine.dispose()


def created(engine, schema):
    """Return the catalogue that `create_all` makes, and take its tables away again."""
    if schema and engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {schema}"))
    metadata_for(schema).create_all(engine)
    try:
        return catalogue(engine, schema)
    finally:
        metadata_for(schema).drop_all(engine)


@with_and_without_schema
def test_the_migrated_tables_are_those_of_the_models(fresh, schema):
    wanted = created(fresh, schema)
    migrator = Migrator(fresh, schema)
    assert migrator.current() is None
    migrator.upgrade()
    assert catalogue(fresh, schema) == wanted
    assert migrator.current()
    migrator.downgrade("base")
    assert not inspect(fresh).has_table("async_jobs", schema=schema)
    migrator.upgrade()
    assert catalogue(fresh, schema) == wanted


@with_and_without_schema
@pytest.mark.parametrize("version", ["async_jobs_0001", "async_jobs_0002"])
def test_the_jobs_of_an_earlier_version_are_kept_on_the_way_up_and_down(fresh, schema, version):
    table = f"{schema}.async_jobs" if schema else "async_jobs"
    migrator = Migrator(fresh, schema)
    migrator.upgrade(version)
    with fresh.begin() as connection:
        connection.execute(
            text(
                f"INSERT INTO {table} "
                "(id, type, status, created_at, last_updated_at, batch_id, item_id, item_position) "
                "VALUES (:id, 'a', 'PENDING', '2026-01-01', '2026-01-01', :id, 'one', 1)"
            ),
            {"id": str(uuid4())},
        )
    for move in (migrator.upgrade, lambda: migrator.downgrade(version), migrator.upgrade):
        move()
        with fresh.connect() as connection:
            assert connection.execute(text(f"SELECT item_id FROM {table}")).all() == [("one",)]


@with_and_without_schema
def test_the_printed_ddl_makes_the_tables_of_the_models(fresh, schema):
    wanted = created(fresh, schema)
    with fresh.begin() as connection:
        for statement in ddl(fresh.dialect, schema).split(";\n"):
            if statement.strip():
                connection.execute(text(statement))
    assert catalogue(fresh, schema) == wanted


@pytest.mark.parametrize("schema", ["new"])
def test_a_schema_that_is_not_there_is_created(fresh, schema):
    Migrator(fresh, schema).upgrade()
    assert inspect(fresh).has_table("async_jobs", schema="new")


@with_and_without_schema
@pytest.mark.parametrize("convention", [True, False])
def test_a_project_with_alembic_migrates_and_then_has_nothing_to_do(fresh, schema, convention, tmp_path):
    wanted = created(fresh, schema)
    target = [consumer_metadata(convention), jobs.metadata_for(schema)]
    project = Project(tmp_path / "alembic", fresh, target, library=True, **options(schema))
    project.config.attributes["options"]["target_metadata"] = target
    command_upgrade_library(project)
    assert "async_jobs" not in project.revise("own tables")
    project.upgrade()
    assert catalogue(fresh, schema) == wanted
    assert operations(project.revise("nothing")) == []
    project.downgrade_library()
    assert not inspect(fresh).has_table("async_jobs", schema=schema)
    assert inspect(fresh).has_table("customer")
    project.upgrade()
    assert catalogue(fresh, schema) == wanted


@with_and_without_schema
def test_a_project_may_generate_the_tables_from_the_metadata_alone(fresh, schema, tmp_path):
    wanted = created(fresh, schema)
    target = [consumer_metadata(), jobs.metadata_for(schema)]
    project = Project(tmp_path / "alembic", fresh, target, library=False, **options(schema))
    text = project.revise("everything")
    assert "flask_async_jobs" not in text
    project.upgrade()
    assert catalogue(fresh, schema) == wanted
    assert operations(project.revise("nothing")) == []


@pytest.mark.parametrize("schema", [None])
def test_a_table_that_the_consumer_gave_up_is_still_proposed_for_dropping(fresh, schema, tmp_path):
    target = [consumer_metadata(), jobs.metadata]
    project = Project(tmp_path / "alembic", fresh, target, library=True)
    command_upgrade_library(project)
    project.revise("own tables")
    project.upgrade()
    target[0].remove(target[0].tables["invoice"])
    assert [line.split("(")[0].strip() for line in operations(project.revise("less"))] == ["op.drop_table"]


def options(schema):
    """What a project with a schema says to Alembic: look there, and nowhere else beside the default schema."""
    if schema is None:
        return {}
    return {
        "include_schemas": True,
        "include_name": lambda name, type_, parents: type_ != "schema" or name in (None, schema),
    }


def command_upgrade_library(project):
    from alembic import command

    command.upgrade(project.config, "async_jobs@head")


def operations(text):
    upgrade = text.split("def upgrade")[1].split("def downgrade")[0]
    return [line for line in upgrade.splitlines() if line.strip().startswith(("op.", "with op"))]
