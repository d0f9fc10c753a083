"""A database that cannot even be connected to: requests are answered in time, with an engine as it comes."""

import socket
import threading
import time
from contextlib import contextmanager

import pytest
from sqlalchemy import create_engine, event, make_url

from flask_async_jobs import AsyncJobs, JobRepository
from tests.integration.apps import UNKNOWN_ID, assert_problem
from tests.integration.processes import application
from tests.servers.proxy import proxied
from tests.waiting import wait_until

LIMIT = 10
URL = "postgresql+psycopg://user@127.0.0.1/jobs"
REQUESTS = [("POST", "/jobs/quick"), ("GET", f"/jobs/{UNKNOWN_ID}/status"), ("DELETE", f"/jobs/{UNKNOWN_ID}")]


@pytest.fixture
def jobs():
    jobs = AsyncJobs()
    jobs.register("quick", lambda: None)
    return jobs


@contextmanager
def silent_host():
    """A host that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]


@contextmanager
def dropping_host():
    """A host that drops packets: its queue of connections is full, so that no answer to another one comes."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        port, waiting = server.getsockname()[1], []
        for _ in range(8):
            waiting.append(client := socket.socket())
            client.settimeout(0.2)
            try:
                client.connect(("127.0.0.1", port))
            except TimeoutError:
                break
        else:
            pytest.skip("this system takes more connections than the queue has room for")
        yield port
        for client in waiting:
            client.close()


def answers_at_once(app):
    """Send one request of each kind at the same moment, and return the answers that came within the limit."""
    answers = {}

    def ask(method, path):
        answers[method] = app.test_client().open(path, method=method)

    threads = [threading.Thread(target=ask, args=request, daemon=True) for request in REQUESTS]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0, begun + LIMIT - time.monotonic()))
    return answers


@pytest.mark.parametrize("host", [silent_host, dropping_host])
@pytest.mark.parametrize("options", [{}, {"pool_pre_ping": True}, {"pool_size": 1, "max_overflow": 0}])
def test_a_host_that_does_not_answer_is_a_503_in_time(jobs, host, options):
    with host() as port:
        engine = create_engine(make_url(URL).set(port=port), **options)
        app = application(jobs, engine, AUTO_START=False)
        answers = answers_at_once(app)
        assert answers.keys() == {"POST", "GET", "DELETE"}
        for answer in answers.values():
            assert_problem(answer, 503, "storage-unavailable")
        engine.dispose()


def test_connections_that_freeze_are_pinged_in_time_and_replaced(jobs, postgres_url):
    with proxied(postgres_url, pool_pre_ping=True) as (proxy, engine):
        app = application(jobs, engine, AUTO_START=False)
        assert app.test_client().post("/jobs/quick").status_code == 202
        proxy.freeze()
        for _ in range(2):
            answers = answers_at_once(app)
            assert [answer.status_code for answer in answers.values()] == [503] * 3
        proxy.thaw()
        wait_until(lambda: app.test_client().post("/jobs/quick").status_code == 202)
        assert engine.pool.checkedout() == 0


def test_what_the_application_connects_for_itself_takes_as_long_as_it_wants():
    engine, seen = create_engine(URL), []
    ping = engine.dialect.do_ping
    JobRepository(engine)
    watched = engine.dialect.do_ping
    JobRepository(engine)
    assert engine.dialect.do_ping is watched is not ping

    @event.listens_for(engine, "do_connect")
    def refuse(dialect, record, arguments, parameters):
        seen.append(dict(parameters))
        raise ConnectionError

    with pytest.raises(ConnectionError):
        engine.connect()
    assert "connect_timeout" not in seen[0]


def test_a_limit_of_the_applications_own_stands(jobs, monkeypatch):
    with silent_host() as port:
        engine, asked = create_engine(make_url(URL).set(port=port), connect_args={"connect_timeout": 2}), []
        connect = engine.dialect.connect

        def noting(**parameters):
            asked.append(parameters["connect_timeout"])
            return connect(**parameters)

        monkeypatch.setattr(engine.dialect, "connect", noting)
        app = application(jobs, engine, AUTO_START=False)
        begun = time.monotonic()
        assert app.test_client().get(REQUESTS[1][1]).status_code == 503
        assert 1.5 < time.monotonic() - begun < 2.9
        assert asked == [2]
        engine.dispose()
