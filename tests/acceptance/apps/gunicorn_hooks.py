"""A configuration of gunicorn by which every worker starts the library before its first request."""

from typing import Any


def post_worker_init(worker: Any) -> None:
    from consumer import jobs  # late: gunicorn reads this file before it knows where the application is

    jobs.start(worker.wsgi)
