"""Slots, claims and the life of a process's threads."""

import threading
from datetime import timedelta

import pytest

from flask_async_jobs import AsyncJobs, ConfigurationError, JobRepository, JobStatus, StorageUnavailable
from tests.integration.processes import application, running
from tests.integration.stores import new_job
from tests.waiting import wait_until


@pytest.fixture
def jobs():
    return AsyncJobs()


def dispatcher_of(app):
    return app.extensions["async_jobs"].dispatcher


@pytest.fixture
def own_threads():
    """Give the library's threads that were started since the test began."""
    before = set(threading.enumerate())
    names = ("async-jobs", "APScheduler")
    return lambda: [t for t in threading.enumerate() if t not in before and t.name.startswith(names)]


def test_no_more_handlers_run_at_once_than_there_are_slots(jobs, engine):
    gate, lock, now, most = threading.Event(), threading.Lock(), [0], [0]

    def handler():
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        gate.wait(10)
        with lock:
            now[0] -= 1

    jobs.register("gate", handler)
    with running(jobs, engine, PROCESSING_CONCURRENCY_LIMIT=3, PROCESSING_POLL_INTERVAL="PT1H") as app:
        submitted = [jobs.submit("gate") for _ in range(10)]
        wait_until(lambda: len(dispatcher_of(app).running) == 3)
        assert [jobs.get(each.job_id).status for each in submitted].count(JobStatus.PENDING) == 7
        gate.set()
        wait_until(lambda: all(jobs.get(each.job_id).status is JobStatus.COMPLETED for each in submitted))
    assert most[0] == 3


def test_a_backlog_is_drained_without_waiting_for_the_poll(jobs, engine):
    jobs.register("quick", lambda: None)
    repository = JobRepository(engine)
    ids = [repository.insert(new_job("quick")).job_id for _ in range(50)]
    with running(jobs, engine, PROCESSING_CONCURRENCY_LIMIT=2, PROCESSING_POLL_INTERVAL="PT1H"):
        wait_until(lambda: all(jobs.get(each).status is JobStatus.COMPLETED for each in ids), timeout=20)
    assert {jobs_of.attempt for jobs_of in map(repository.find, ids)} == {1}


def test_a_submission_wakes_its_own_process_at_once(jobs, engine):
    done = threading.Event()
    jobs.register("signal", lambda: done.set())
    with running(jobs, engine, PROCESSING_POLL_INTERVAL="PT1H"):
        jobs.submit("signal")
        assert done.wait(2)


def test_nothing_starts_before_the_first_request_and_everything_stops(jobs, engine, own_threads):
    jobs.register("quick", lambda: None)
    app = application(jobs, engine, AUTO_START=True)
    assert own_threads() == []
    app.test_client().get("/nowhere")
    assert {t.name for t in own_threads()} >= {"async-jobs-claims", "async-jobs-leases", "APScheduler"}
    assert all(t.daemon for t in own_threads())
    jobs.shutdown(app=app)
    wait_until(lambda: not own_threads(), 10, lambda: str(own_threads()))


def test_a_health_probe_that_the_application_answers_early_starts_it_too(jobs, engine):
    app = application(jobs, engine, AUTO_START=True)
    app.before_request(lambda: "healthy")
    app.test_client().get("/health")
    assert dispatcher_of(app)
    jobs.shutdown(app=app)


def test_a_test_application_does_not_start_by_itself(jobs, engine):
    app = application(jobs, engine)
    app.testing = True
    app.test_client().get("/jobs/x")
    assert dispatcher_of(app) is None


def test_a_process_that_only_accepts_runs_nothing(jobs, engine):
    jobs.register("quick", lambda: None)
    with running(jobs, engine, PROCESSING_ENABLED=False) as app:
        assert jobs.submit("quick").status is JobStatus.PENDING
        assert dispatcher_of(app) is None


def test_start_twice_and_shutdown_twice_do_no_harm(jobs, engine):
    app = application(jobs, engine)
    jobs.start(app)
    first = dispatcher_of(app)
    jobs.start(app)
    assert dispatcher_of(app) is first
    assert jobs.shutdown(app=app)
    assert jobs.shutdown(app=app)


def test_a_process_can_be_started_again(jobs, engine):
    jobs.register("quick", lambda: None)
    for _ in range(2):
        with running(jobs, engine):
            submitted = jobs.submit("quick")
            wait_until(lambda submitted=submitted: jobs.get(submitted.job_id).status is JobStatus.COMPLETED)


def test_without_an_application_there_is_nothing_to_start():
    with pytest.raises(RuntimeError):
        AsyncJobs().start()


def test_a_drain_waits_for_handlers_and_claims_no_more(jobs, engine):
    started, gate = threading.Event(), threading.Event()

    def handler():
        started.set()
        gate.wait(10)

    jobs.register("gate", handler)
    repository = JobRepository(engine)
    app = application(jobs, engine, PROCESSING_CONCURRENCY_LIMIT=1)
    with app.app_context():
        jobs.start()
        running_job, waiting = jobs.submit("gate"), jobs.submit("gate")
        assert started.wait(10)
        threading.Timer(0.2, gate.set).start()
        assert jobs.shutdown()
    assert repository.find(running_job.job_id).status is JobStatus.COMPLETED
    assert repository.find(waiting.job_id).status is JobStatus.PENDING


def test_a_drain_is_bounded(jobs, engine, caplog, own_threads):
    started, gate = threading.Event(), threading.Event()

    def handler():
        started.set()
        gate.wait(30)

    jobs.register("gate", handler)
    app = application(jobs, engine)
    with app.app_context():
        jobs.start()
        jobs.submit("gate")
        assert started.wait(10)
        assert not jobs.shutdown(timedelta(milliseconds=50))
    assert "left to recovery" in caplog.text
    gate.set()
    wait_until(lambda: not own_threads(), 10, lambda: str(own_threads()))


def test_a_shutdown_leaves_no_thread_behind(jobs, engine, own_threads):
    jobs.register("chatty", lambda ctx: ctx.log("a line"))
    with running(jobs, engine):
        followed = jobs.watch(jobs.submit("chatty").job_id)
        assert [event.event for event in followed][-1] == "complete"
        names = {thread.name for thread in own_threads()}
        assert {"async-jobs-reports", "async-jobs-watcher", "async-jobs-passes"} <= names
    wait_until(lambda: not own_threads(), 2, lambda: str(own_threads()))


def test_a_database_in_memory_is_refused_at_the_start(jobs):
    app = application_without_engine(jobs, "sqlite://")
    with pytest.raises(ConfigurationError, match=r"sqlite:///jobs\.sqlite"):
        jobs.start(app)


def application_without_engine(jobs, url):
    from flask import Flask

    app = Flask("memory")
    app.config["ASYNC_JOBS_DATABASE_URL"] = url
    jobs.init_app(app)
    return app


class Inline:
    """A dispatcher of the application's own."""

    def __init__(self):
        self.calls = []

    def start(self):
        self.calls.append("start")

    def wake(self):
        self.calls.append("wake")

    def stop(self, timeout):
        self.calls.append("stop")
        return True

    @property
    def running(self):
        return ()


def test_an_application_may_bring_its_own_dispatcher(jobs, engine):
    jobs.register("quick", lambda: None)
    dispatcher = Inline()
    with running(jobs, engine, {"dispatcher": dispatcher}):
        jobs.submit("quick")
    assert dispatcher.calls == ["start", "wake", "stop"]


@pytest.mark.parametrize("outage", [False, True])
def test_when_no_thread_can_be_started_the_jobs_are_given_back_and_no_slot_is_lost(
    jobs, engine, monkeypatch, outage
):
    jobs.register("quick", lambda: None)
    app = application(jobs, engine)
    parts = app.extensions["async_jobs"]
    dispatcher = parts._new_dispatcher(None)
    ids = [parts.repository.insert(new_job("quick")).job_id for _ in range(3)]

    def refuse(*arguments):
        raise RuntimeError("can't start new thread")

    def away(*arguments, **options):
        raise StorageUnavailable("away")

    monkeypatch.setattr(dispatcher._pool, "submit", refuse)
    if outage:
        monkeypatch.setattr(parts.repository, "retry", away)
    assert dispatcher.claim_once() == 3
    assert dispatcher._slots.take() == dispatcher._slots.limit
    assert {(view.status, view.attempt) for view in map(parts.repository.find, ids)} == {
        (JobStatus.PROCESSING, 1) if outage else (JobStatus.PENDING, 0)
    }
