"""Living with the application's own Flask-Smorest: in its `Api`, beside it, and without any of its settings."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from flask import Flask
from flask_smorest import Api, Blueprint, abort
from marshmallow import Schema, fields
from sqlalchemy import Engine, create_engine

from flask_async_jobs import ConfigurationError
from tests.integration.apps import PROBLEM, Site, TestJobs, assert_problem, new_app, serving

SETTINGS = {
    "API_TITLE": "Shop",
    "API_VERSION": "v2",
    "OPENAPI_VERSION": "3.0.3",
    "OPENAPI_URL_PREFIX": "/shop-docs",
    "OPENAPI_JSON_PATH": "shop.json",
}
PLACES = ["inside", "beside", "before"]


class ThingSchema(Schema):
    id = fields.Integer(required=True)


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Engine]:
    engine = create_engine(sqlite_url)
    yield engine
    engine.dispose()


def shop(app: Flask) -> Api:
    """Add the consumer's own `Api` with an operation that works and one that fails."""
    app.config.update(SETTINGS)
    api = Api(app)
    things = Blueprint("things", "things", url_prefix="/things", description="Things.")

    @things.route("/", methods=["POST"])
    @things.arguments(ThingSchema)
    @things.response(201, ThingSchema)
    def add(thing: dict[str, Any]) -> dict[str, Any]:
        """Add a thing."""
        return thing

    @things.route("/<int:id>")
    @things.response(200, ThingSchema)
    @things.alt_response(404, schema=ThingSchema)
    def get(id: int) -> None:
        """Show a thing."""
        abort(404, message="no such thing")

    api.register_blueprint(things)
    return api


def shop_alone() -> Flask:
    app = new_app()
    shop(app)
    return app


def in_shop(jobs: TestJobs, store: Engine, place: str) -> Any:
    """The library in the consumer's `Api`, in one of its own beside it, or there before it."""
    app = new_app()
    if place == "before":
        return serving(jobs, store, app=app)
    api = shop(app)
    return serving(jobs, store, app=app, init={"api": api} if place == "inside" else {})


def finish(site: Site, place: str) -> Site:
    if place == "before":
        shop(site.app)
    return site


def things_of(app: Flask) -> list[tuple[int, str, bytes]]:
    """What the consumer's own routes answer."""
    client = app.test_client()
    asked = [client.post("/things/", json={"id": 1}), client.post("/things/", json={"id": "x"})]
    asked += [client.get("/things/7"), client.get("/things"), client.get("/nothing"), client.put("/things/")]
    return [(response.status_code, response.content_type, response.data) for response in asked]


@pytest.mark.parametrize("place", PLACES)
def test_the_consumers_operations_and_errors_stay_as_they_were(store: Engine, place: str) -> None:
    with in_shop(TestJobs(), store, place) as site:
        finish(site, place)
        assert things_of(site.app) == things_of(shop_alone())
        problem = assert_problem(site.get("/jobs/a/b"), 404, "not-found")
        assert "message" not in problem
        assert site.post("listing", '{"value": {"kept": 1}}').status_code == 202


@pytest.mark.parametrize("place", PLACES)
def test_the_consumers_part_of_the_document_stays_as_it_was(store: Engine, place: str) -> None:
    alone = shop_alone().test_client().get("/shop-docs/shop.json").json
    with in_shop(TestJobs(), store, place) as site:
        document = finish(site, place).get("/shop-docs/shop.json").json
        assert (document["info"], document["openapi"]) == (alone["info"], "3.0.3")
        assert alone["paths"].items() <= document["paths"].items()
        for kind, parts in alone["components"].items():
            assert parts.items() <= document["components"][kind].items()
        if place == "inside":
            assert {"/jobs/quick", "/jobs/{job_id}/status"} <= document["paths"].keys()
        else:
            assert document == alone


@pytest.mark.parametrize("place", PLACES)
def test_every_document_is_valid(store: Engine, place: str) -> None:
    with in_shop(TestJobs(), store, place) as site:
        finish(site, place)
        schemathesis.openapi.from_wsgi("/shop-docs/shop.json", site.app).validate()
        if place == "inside":
            assert site.get("/docs/").status_code == site.get("/docs/openapi.json").status_code == 404
        else:
            schemathesis.openapi.from_wsgi("/docs/openapi.json", site.app).validate()
            document = site.get("/docs/openapi.json").json
            assert document["openapi"] == "3.1.0"
            assert document["info"]["title"] != "Shop"
            assert not any(path.startswith("/things") for path in document["paths"])


@pytest.mark.parametrize("place", PLACES)
def test_operation_ids_are_unique_in_each_document(store: Engine, place: str) -> None:
    with in_shop(TestJobs(), store, place) as site:
        document = finish(site, place).get("/shop-docs/shop.json").json
        operations = [o for item in document["paths"].values() for m, o in item.items() if m != "parameters"]
        ids = [operation["operationId"] for operation in operations if "operationId" in operation]
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize("place", PLACES)
def test_the_consumer_prints_its_document(store: Engine, place: str) -> None:
    with in_shop(TestJobs(), store, place) as site:
        result = finish(site, place).app.test_cli_runner().invoke(args=["openapi", "print"])
        assert result.exit_code == 0
        assert json.loads(result.output) == site.get("/shop-docs/shop.json").json


def test_a_factory_may_be_called_twice(store: Engine) -> None:
    jobs = TestJobs()
    with in_shop(jobs, store, "inside") as first, in_shop(jobs, store, "beside") as second:
        jobs.register("late", lambda: None)
        for site, address in ((first, "/shop-docs/shop.json"), (second, "/docs/openapi.json")):
            assert {"/jobs/quick", "/jobs/late"} <= site.get(address).json["paths"].keys()
            assert site.post("late").status_code == 202


def test_a_consumer_without_settings_of_smorest_needs_none(store: Engine) -> None:
    with serving(TestJobs(), store) as site:
        assert not [key for key in site.app.config if key.startswith(("API_", "OPENAPI_"))]
        assert site.get("/docs/openapi.json").status_code == site.get("/docs/").status_code == 200


def test_an_api_that_is_not_initialised_is_refused(store: Engine) -> None:
    with pytest.raises(ConfigurationError, match=r"api\.init_app\(app\)"):
        TestJobs().init_app(new_app(), engine=store, api=Api())


def test_the_problems_of_the_library_are_not_of_the_consumers_form(store: Engine) -> None:
    with in_shop(TestJobs(), store, "inside") as site:
        for response in (site.post("nothing"), site.get("/jobs/quick"), site.post("listing", "{}")):
            assert response.content_type == PROBLEM
            assert response.json.keys() >= {"type", "title", "status"}
        assert site.get("/things/7").content_type == "application/json"
