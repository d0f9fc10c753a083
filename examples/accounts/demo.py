"""Run the example on this machine.

    python -m examples.accounts.demo

`DATABASE_URL` names a PostgreSQL or SQLite database (default: a SQLite file in the instance folder), `PORT`
the port (default 5000; another one when it is taken), `ACCOUNTS` how many accounts an empty database gets.
"""

from __future__ import annotations

from flask import Flask

from examples.accounts.app import create_app
from examples.accounts.data import fill
from examples.accounts.database import migrate
from examples.accounts.handlers import jobs
from examples.accounts.models import db
from examples.serving import run

TAKE_ID = r"""sed -n 's/.*"jobId": *"\([^"]*\)".*/\1/p'"""
BANNER = """
The page     {url}/
Swagger UI   {url}/docs/

Make sure that the accounts are evaluated; the same key again gives the same job:
  JOB=$(curl -s -X POST {url}/jobs/accounts -H 'Idempotency-Key: monday-1' | {take_id})
Ask how far it is:
  curl -i {url}/jobs/$JOB/status
Or be told each change, until it has ended:
  curl -N {url}/jobs/$JOB/events
Read the outcome, from the application's own table:
  curl -i '{url}/accounts?eligible=true&limit=3'
Begin once more, whatever was just done, and cancel that run:
  JOB=$(curl -s -X POST {url}/jobs/accounts -H 'Cache-Control: no-cache' | {take_id})
  curl -i -X DELETE {url}/jobs/$JOB
A job that fails; the answer is held until it has ended:
  curl -i -X POST {url}/jobs/accounts-audit -H 'Prefer: wait=20'
A job that another process does:
  curl -i -X POST {url}/jobs/statements

Ctrl-C ends it.
"""


def main() -> None:
    """Migrate, fill, serve until Ctrl-C or SIGTERM, drain, and give the database its connections back."""
    app = create_app()
    try:
        run(app, jobs, prepare=prepare, banner=lambda url: BANNER.format(url=url, take_id=TAKE_ID))
    finally:
        with app.app_context():
            db.engine.dispose()


def prepare(app: Flask) -> None:
    """Bring the schema up to date, and fill the tables the first time."""
    migrate(app)
    with app.app_context():
        if fill(db.session, app.config["ACCOUNTS"]):
            print(f"Made {app.config['ACCOUNTS']} accounts.", flush=True)


if __name__ == "__main__":
    main()
