"""Run the example on this machine.

    python -m examples.listing_review.demo

`DATABASE_URL` names a PostgreSQL or SQLite database (default: a SQLite file in the current folder), `PORT` the port
(default 5000; another one when it is taken).
"""

from __future__ import annotations

from flask import Flask
from sqlalchemy import NullPool, create_engine

from examples.listing_review.app import create_app
from examples.listing_review.handlers import jobs
from examples.serving import run
from flask_async_jobs.migrations import Migrator

BANNER = """
Review a catalogue in the browser   {url}/
Swagger UI                          {url}/docs/

Send the sample catalogue as one batch, and wait for its end; the same file again gives the same batch:
  python -m examples.listing_review.submit examples/listing_review/catalogue.json --url {url}
Then send what failed once more, and only that:
  python -m examples.listing_review.submit examples/listing_review/catalogue.json --url {url} --resubmit-failed
Review one listing while you wait:
  curl -s {url}/listings/review -H 'Content-Type: application/json' \\
    -d '{{"sku": "lamp-1", "title": "LAMP", "description": "A lamp.", "price": 45.00}}'

Ctrl-C ends it.
"""


def main() -> None:
    """Migrate, serve until Ctrl-C or SIGTERM, then drain."""
    run(create_app(), jobs, prepare=migrate, banner=lambda url: BANNER.format(url=url))


def migrate(app: Flask) -> None:
    """Do what `flask --app … async-jobs db upgrade` does: the only tables are the library's."""
    engine = create_engine(app.config["ASYNC_JOBS_DATABASE_URL"], poolclass=NullPool)
    Migrator(engine).upgrade()


if __name__ == "__main__":
    main()
