"""What happened to the jobs that a finding names, in the order of time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from chaos.history import History

MOST: Final = 3
_job = re.compile(r"\bjob ([0-9a-f-]{36})")


def stories(history: History, findings: Sequence[str]) -> list[str]:
    """Return a story for each of the first jobs that the findings name."""
    named = dict.fromkeys(found[1] for sentence in findings if (found := _job.search(sentence)))
    return [story(history, job_id) for job_id in list(named)[:MOST]]


def story(history: History, job_id: str) -> str:
    """Return the changes and the runs of a job as lines, with the seconds since the first of them."""
    events = sorted(_events(history, job_id))
    begin = events[0][0] if events else 0.0
    return "\n".join([f"job {job_id}", *(f"  {at - begin:8.3f} {what}" for at, what in events)])


def _events(history: History, job_id: str) -> Iterator[tuple[float, str]]:
    for change in history.changes_of.get(job_id, ()):
        by = " by recovery" if change.recovered else ""
        yield change.at, f"{change.old} {change.old_token} -> {change.new} {change.new_token}{by}"
    for run in history.runs_of.get(job_id, ()):
        yield run.started_at, f"attempt {run.attempt} begins as {run.token}"
        if run.ended_at is not None:
            yield run.ended_at, f"attempt {run.attempt} ends as {run.token}"
