"""An application whose session reads from a replica that lags behind."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.acceptance.apps.harness import CONSUMER, Consumer
from tests.servers.postgres import Databases

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance


@pytest.fixture
def replica_url(postgres: Databases, postgres_template: str) -> Iterator[str]:
    """A database that refuses every write, and knows of no job."""
    name = f"replica_{uuid4().hex}"
    url = postgres.create_database(name, postgres_template)
    yield f"{url}?options=-c%20default_transaction_read_only%3Don"
    postgres.drop_database(name)


@pytest.fixture
def consumer(postgres_consumer: Consumer, replica_url: str) -> Consumer:
    application = CONSUMER.with_name("replicated.py")
    postgres_consumer.serve("--threads", "4", application=application, REPLICA_URL=replica_url)
    return postgres_consumer


def test_every_state_is_right_at_once_and_nothing_is_written_to_the_replica(consumer: Consumer) -> None:
    for number in range(20):
        accepted = consumer.submit("quick", key=f"key-{number}")
        job_id = accepted.json()["jobId"]
        assert consumer.http.get(accepted.headers["Location"]).status_code == 200
        again = consumer.submit("quick", key=f"key-{number}").json()
        assert (again["jobId"], again["disposition"]) == (job_id, "replayed")
        assert consumer.follow(accepted).json()["status"] == "COMPLETED"
        assert consumer.http.get(accepted.json()["eventsUrl"]).text.count("event: complete") == 1
        result = consumer.http.get(f"/jobs/{job_id}/result").json()
        assert result == {"seen": 0, "cancelled": False}  # the application's own reads went to the replica
    assert consumer.http.delete(accepted.json()["cancelUrl"]).status_code == 409
    assert consumer.new_trouble() == []


def test_a_transaction_that_is_shared_is_the_one_of_the_sessions_writes(consumer: Consumer) -> None:
    accepted = consumer.http.post("/submit")
    assert consumer.http.get(accepted.headers["Location"]).status_code == 200
    assert consumer.follow(accepted).json()["status"] == "COMPLETED"
    assert consumer.store.notes() == ["submitted", "left"]
    assert consumer.new_trouble() == []
