"""The accounts example: its migrations beside the library's, and its data."""

from collections.abc import Iterator

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from flask import Flask
from sqlalchemy import inspect, text

from examples.accounts.app import create_app
from examples.accounts.data import fill
from examples.accounts.database import migrate, migration_config
from examples.accounts.handlers import jobs
from examples.accounts.models import db


@pytest.fixture
def bank(empty_database_url: str) -> Iterator[Flask]:
    app = create_app({"TESTING": True, "SQLALCHEMY_DATABASE_URI": empty_database_url})
    with app.app_context():
        yield app
        db.session.remove()
        db.engine.dispose()


def test_both_sets_of_tables_are_made_and_autogenerate_finds_no_difference(bank: Flask) -> None:
    migrate(bank)
    with db.engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), [db.metadata, jobs.metadata])
    assert differences == []
    assert {"account", "movement", "statement", "async_jobs"} <= tables()


def test_migrating_again_changes_nothing(bank: Flask) -> None:
    migrate(bank)
    fill(db.session, 10)
    migrate(bank)
    assert db.session.scalar(text("SELECT count(*) FROM account")) == 10


def test_each_branch_goes_down_and_up_on_its_own(bank: Flask) -> None:
    migrate(bank)
    command.downgrade(migration_config(bank), "accounts@base")
    assert "account" not in tables()
    assert "async_jobs" in tables()
    migrate(bank)
    assert "account" in tables()


def test_the_data_is_made_once(bank: Flask) -> None:
    migrate(bank)
    assert fill(db.session, 1_234) is True
    before = rows()
    assert fill(db.session, 5_000) is False
    assert rows() == before
    assert len(before) == 1_234


def test_the_ledger_is_wrong_for_one_account_in_a_thousand(bank: Flask) -> None:
    migrate(bank)
    fill(db.session, 2_100)
    wrong = db.session.execute(
        text(
            "SELECT id, (SELECT sum(amount_cents) FROM movement WHERE account_id = a.id) - balance_cents"
            " FROM account a WHERE balance_cents <>"
            " (SELECT coalesce(sum(amount_cents), 0) FROM movement WHERE account_id = a.id) ORDER BY id"
        )
    )
    assert [(row[0], int(row[1])) for row in wrong] == [(17, 1250), (1017, 1250), (2017, 1250)]


def tables() -> set[str]:
    return set(inspect(db.engine).get_table_names())


def rows() -> list[tuple[object, ...]]:
    return [tuple(row) for row in db.session.execute(text("SELECT * FROM account ORDER BY id"))]
