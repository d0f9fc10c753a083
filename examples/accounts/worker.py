"""The other interpreter of the job type `statements`.

    python -m examples.accounts.worker JOB_ID EXECUTION_TOKEN

It stands for whatever does the work elsewhere: a queue's consumer, a script on another host, a container. All
it shares with the web process is the database, and all it is told is which attempt of which job it works for.
"""

from __future__ import annotations

import sys
from uuid import UUID

from examples.accounts.app import create_app
from examples.accounts.handlers import jobs
from examples.accounts.models import db
from examples.accounts.statements import issue_statements


def work(job_id: UUID, execution_token: UUID) -> bool:
    """Issue the statements and report the outcome.

    Returns:
        False when the outcome was refused: the job was cancelled, or another attempt owns it by now.
    """
    reporter = jobs.reporter(job_id, execution_token)
    try:
        issue_statements(db.session, job_id, reporter.progress)
    except Exception:
        reporter.fail("Statements could not be issued", code="statements-failed")
        raise
    return reporter.complete()


def main() -> int:
    """Run for the job and the token of the command line; 0 when the job is completed."""
    job_id, execution_token = (UUID(argument) for argument in sys.argv[1:3])
    with create_app().app_context():
        return 0 if work(job_id, execution_token) else 1


if __name__ == "__main__":
    sys.exit(main())
