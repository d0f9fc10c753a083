"""Processes on one PostgreSQL tell each other what changed, so that nobody has to wait for the next poll."""

import threading
import time

import psycopg
import pytest
from sqlalchemy import create_engine, make_url, text
from sqlalchemy.orm import Session

from flask_async_jobs import AsyncJobs, JobRepository, JobStatus
from flask_async_jobs.notifications import DUE, GAP, Notifier
from flask_async_jobs.watchdog import Watchdog
from tests.integration.processes import running
from tests.servers.proxy import proxied
from tests.waiting import wait_until

PATIENT = {"PROCESSING_POLL_INTERVAL": 60, "SSE_POLL_INTERVAL": 60}
ACCEPTING = {**PATIENT, "PROCESSING_ENABLED": False}
LISTENERS = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND (query LIKE 'LISTEN%' OR query LIKE 'SELECT pg_notify%')
"""


@pytest.fixture
def engines(postgres_url):
    made = [create_engine(postgres_url), create_engine(postgres_url)]
    yield made
    for each in made:
        each.dispose()


def library(handler=lambda: None):
    jobs = AsyncJobs()
    jobs.register("quick", handler)
    return jobs


def listeners(engine):
    with engine.connect() as connection:
        return connection.execute(text(LISTENERS)).scalars().all()


def acquainted(*apps):
    """Wait until each of the applications has heard of the other."""
    wait_until(lambda: all(app.extensions["async_jobs"]._running.notifier.has_peers for app in apps))


def test_a_job_is_run_at_once_by_a_process_that_only_looks_once_a_minute(engines):
    web, worker = library(), library()
    with running(worker, engines[1], **PATIENT) as one, running(web, engines[0], **ACCEPTING) as other:
        acquainted(one, other)
        submitted = web.submit("quick")
        job = web.wait(submitted.job_id, 5)
    assert job.status is JobStatus.COMPLETED


def test_what_a_session_commits_in_one_process_is_seen_by_another(engines):
    web, other = library(), library()
    with running(other, engines[1], **ACCEPTING) as app, running(web, engines[0], **ACCEPTING) as here:
        acquainted(app, here)
        submitted = web.submit("quick")
        with app.app_context():
            events = other.watch(submitted.job_id)
            assert next(events).event == "status"
        with Session(engines[0]) as session:
            web.cancel(submitted.job_id, session=session)
            session.commit()
        with app.app_context():
            assert next(events).event == "cancelled"


def test_a_process_whose_connection_is_killed_listens_again(engines):
    web, worker = library(), library()
    with running(worker, engines[1], **PATIENT) as one, running(web, engines[0], **ACCEPTING) as other:
        acquainted(one, other)
        killed = listeners(engines[0])
        with engines[0].connect() as connection:
            for pid in killed:
                connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        wait_until(lambda: len(found := listeners(engines[0])) == 2 and not set(found) & set(killed))
        assert web.wait(web.submit("quick").job_id, 5).status is JobStatus.COMPLETED


def test_however_much_is_told_a_process_sends_one_notification_in_twenty_milliseconds(engines):
    heard, conninfo = [], make_url(engines[0].url).set(drivername="postgresql")
    notifier = Notifier(engines[0], None, heard.append)
    with psycopg.connect(conninfo.render_as_string(hide_password=False), autocommit=True) as listener:
        listener.execute('LISTEN "async_jobs"')
        notifier.start()
        (hello,) = listener.notifies(timeout=5, stop_after=1)
        assert hello.payload.startswith("hello ")
        for _ in range(100):
            notifier.tell("changed")  # to nobody
        assert list(listener.notifies(timeout=0.1)) == []
        listener.execute("SELECT pg_notify('async_jobs', 'hello somebody')")
        own, answer = listener.notifies(timeout=5, stop_after=2)
        assert (own.payload, answer.payload[:5]) == ("hello somebody", "here ")
        begun, told = time.monotonic(), 0
        while (elapsed := time.monotonic() - begun) < 0.3:
            notifier.tell("changed")
            told += 1
        received = list(listener.notifies(timeout=0.5))
        notifier.stop()
    assert told > 1_000
    assert 1 <= len(received) <= elapsed / GAP + 2
    assert heard == ["changed"]  # when it began to listen, and nothing of what it told itself


@pytest.mark.parametrize(
    ("settings", "options"),
    [({"NOTIFY_ENABLED": False}, {}), ({}, {"connect_args": {"prepare_threshold": None}})],
    ids=["switched off", "behind a pooler"],
)
def test_nobody_listens_where_that_makes_no_sense(postgres_url, settings, options):
    engine = create_engine(postgres_url, **options)
    jobs = library()
    before = set(threading.enumerate())
    with running(jobs, engine, **settings):
        assert jobs.wait(jobs.submit("quick").job_id, 5).status is JobStatus.COMPLETED
        assert "async-jobs-notifications" not in {thread.name for thread in set(threading.enumerate()) - before}
        assert listeners(engine) == []
    engine.dispose()


def test_a_process_that_is_stopped_no_longer_listens(engines):
    jobs = library()
    with running(jobs, engines[0], **ACCEPTING):
        wait_until(lambda: listeners(engines[1]))
    wait_until(lambda: not listeners(engines[1]))


def test_a_notification_that_a_dead_network_keeps_is_given_up_and_the_next_connection_tells(postgres_url):
    heard = []
    with proxied(postgres_url) as (proxy, engine):
        JobRepository(engine)
        told, listener = Notifier(engine, None, lambda what: None), Notifier(engine, None, heard.append)
        told._watchdog = Watchdog(0.5)
        told.start()
        listener.start()
        wait_until(lambda: told.has_peers and listener.has_peers)
        proxy.freeze()
        told.tell(DUE)
        wait_until(lambda: told._watchdog._running, message="a notification that does not arrive")
        wait_until(lambda: not told._watchdog._running, message="its end")
        proxy.thaw()
        wait_until(lambda: told.tell(DUE) or DUE in heard)
        told.stop()
        listener.stop()
