"""Runs the library's versions for this repository: `alembic upgrade heads`, on `DATABASE_URL` or a SQLite file.

`alembic revision --autogenerate -m "…"` writes the next version; it compares neither CHECKs nor the conditions of
indexes, so those are added by hand, and `tests/integration/test_migrations.py` compares the catalogues.
"""

import os

from alembic import context
from sqlalchemy import create_engine

from flask_async_jobs.models import metadata_for

engine = create_engine(os.environ.get("DATABASE_URL", "sqlite:///development.sqlite"))

with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=metadata_for())
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
