"""What the tests of the log write, and how they ask for it."""

from flask_async_jobs.records import Report
from tests.integration.stores import LEASE

STREAM = {"Accept": "text/event-stream"}
LINES = ["one", "two\n\nid: 9\ndata: x", "\r\n\r", "", "event: result\u2028\u2029é😀", ": comment"]


def write(log, claim, *lines):
    """Write lines of an attempt."""
    log.write(claim.job_id, claim.execution_token, lambda: Report(None, lines), LEASE)


def stream(site, job_id, query="", **headers):
    """Ask for the log of a job as a stream."""
    return site.get(f"/jobs/{job_id}/log{query}", headers={**STREAM, **headers})
