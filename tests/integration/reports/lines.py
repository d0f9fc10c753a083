"""The lines of an attempt's log."""

MOST = 100_000
"""Bytes."""


def lines(reports, claim):
    """Return the lines that the log has."""
    return [entry.line for entry in reports.log.entries(claim.job_id, 0, MOST)]
