"""The OpenAPI document: valid, complete, true to the routes, and browsable without internet access."""

import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from marshmallow import Schema, fields, validate
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from sqlalchemy import Engine, create_engine

from tests.integration.apps import UNKNOWN_ID, URN, Site, TestJobs, new_app, serving
from tests.waiting import wait_until

DOCUMENT = "/docs/openapi.json"
QUICK = settings(
    derandomize=True, max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
NOT_DOCUMENTED = {"content-type", "content-length", "date"}  # OpenAPI says them otherwise, or the server does


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Engine]:
    engine = create_engine(sqlite_url)
    yield engine
    engine.dispose()


@pytest.fixture
def site(store: Engine) -> Iterator[Site]:
    with serving(TestJobs(owners=True), store, run=True) as site:
        yield site


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield method.upper(), path, operation


def resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema as one that can be validated with on its own."""
    return {"components": document.get("components", {}), **schema}


def test_the_document_is_valid_openapi_3_1(site: Site) -> None:
    assert site.get(DOCUMENT).json["openapi"] == "3.1.0"
    schemathesis.openapi.from_wsgi(DOCUMENT, site.app).validate()


def test_the_command_prints_the_same_document(site: Site) -> None:
    result = site.app.test_cli_runner().invoke(args=["openapi", "print"])
    assert result.exit_code == 0
    assert json.loads(result.output) == site.get(DOCUMENT).json


def test_each_type_is_an_operation_with_its_text_and_its_payload(site: Site) -> None:
    document = site.get(DOCUMENT).json
    submissions = {path: operation for method, path, operation in operations(document) if path.count("/") == 2}
    types = ("quick", "other", "boom", "refused", "blank", "listing", "remote", "keyed", "single")
    assert set(submissions) == {
        *(f"/{what}/{type}" for what in ("jobs", "batches") for type in types),
        *("/jobs/{job_id}", "/batches/{batch_id}"),
    }
    quick = document["paths"]["/jobs/quick"]["post"]
    assert (quick["summary"], quick["description"]) == ("Do nothing, at once.", "Nothing at all.")
    assert "requestBody" not in quick
    body = document["paths"]["/jobs/listing"]["post"]["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    validator = jsonschema_rs.validator_for(resolved(document, schema))
    assert validator.is_valid({"value": None, "rooms": 2})
    assert not validator.is_valid({"rooms": "two"})
    assert body["required"]


def test_each_type_has_an_operation_for_batches_with_its_payload_in_the_items(site: Site) -> None:
    document = site.get(DOCUMENT).json
    for type, good, bad in (
        ("listing", {"value": None, "rooms": 2}, {"value": None, "rooms": "two"}),
        ("quick", {}, {"value": None}),
    ):
        operation = document["paths"][f"/batches/{type}"]["post"]
        assert [p["required"] for p in operation["parameters"]] == [True]
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        validator = jsonschema_rs.validator_for(resolved(document, schema))
        assert validator.is_valid({"items": [{"itemId": "a", "payload": good}]})
        assert not validator.is_valid({"items": [{"itemId": "a", "payload": bad}]})
        assert not validator.is_valid({"items": [{"itemId": " ", "payload": good}]})
        assert not validator.is_valid({"items": []})


class Priced(Schema):
    """A schema whose bounds and defaults are no JSON."""

    price = fields.Decimal(validate=validate.Range(Decimal("0.50"), Decimal(100)))
    rate = fields.Decimal(load_default=Decimal("1.5"))
    on = fields.Date(load_default=date(2026, 6, 3))


def test_bounds_and_defaults_that_are_no_json_are_documented(store: Engine) -> None:
    jobs = TestJobs()
    jobs.register("priced", lambda ctx, payload: None, payload_schema=Priced)
    with serving(jobs, store) as site:
        document = site.get(DOCUMENT).json
        members = document["components"]["schemas"]["priced.payload"]["properties"]
        assert (members["price"]["minimum"], members["price"]["maximum"]) == (0.5, 100)
        assert members["rate"]["default"] == 1.5
        assert isinstance(members["on"]["default"], str)
        printed = site.app.test_cli_runner().invoke(args=["openapi", "print"])
        assert json.loads(printed.output) == document


def test_a_required_key_is_documented_as_required(site: Site) -> None:
    for type, required in (("quick", False), ("keyed", True)):
        parameters = site.get(DOCUMENT).json["paths"][f"/jobs/{type}"]["post"]["parameters"]
        assert [p["required"] for p in parameters if p["name"] == "Idempotency-Key"] == [required]


def test_a_type_that_is_registered_after_init_app_appears(store: Engine) -> None:
    jobs = TestJobs()
    with serving(jobs, store) as site:
        jobs.register("late", lambda: None)
        assert "post" in site.get(DOCUMENT).json["paths"]["/jobs/late"]


def test_operation_ids_are_unique(site: Site) -> None:
    found = [operation.get("operationId") for _, _, operation in operations(site.get(DOCUMENT).json)]
    given_ids = [each for each in found if each is not None]
    assert len(given_ids) == len(set(given_ids)) >= 9


# The answers


def answers(site: Site) -> Iterator[tuple[str, str, Any]]:
    """Answers of every kind, each with the method and path it is documented under."""
    ended = {type: site.run(type).json["jobId"] for type in ("quick", "refused")}
    active, other = site.submit("remote"), site.submit("remote")
    for job_id in (active, *ended.values(), UNKNOWN_ID):
        for path in ("/jobs/{job_id}", "/jobs/{job_id}/status", "/jobs/{job_id}/operation"):
            yield "GET", path, site.get(path.format(job_id=job_id))
    for job_id in (active, UNKNOWN_ID, ended["refused"]):
        yield "DELETE", "/jobs/{job_id}", site.ask("DELETE", f"/jobs/{job_id}")
    yield "DELETE", "/jobs/{job_id}/status", site.ask("DELETE", f"/jobs/{active}/status")
    yield "POST", "/jobs/{job_id}/cancel", site.ask("POST", f"/jobs/{other}/cancel")
    site.submit("listing", '{"value": 0}', key="k")
    for body, options in (
        ('{"value": 1}', {}), ('{"value": 1}', {"key": "k"}), ('{"value": 1}', {"key": "ü"}), ("{", {}), ("[]", {}),
        ("{}", {"content_type": "text/plain"}), ("x" * 300_000, {}), ('{"value": "\\u0000"}', {}),
    ):  # fmt: skip
        yield "POST", "/jobs/listing", site.post("listing", body, **options)
    yield from batch_answers(site)
    yield "POST", "/jobs/quick", site.post("quick", "[]")
    yield "POST", "/jobs/keyed", site.post("keyed")


def batch_answers(site: Site) -> Iterator[tuple[str, str, Any]]:
    """Answers of every kind about batches."""
    one = '{"items": [{"itemId": "a"}]}'
    ended, active = (site.batch(type, one, key=type).json["batchId"] for type in ("refused", "remote"))
    wait_until(lambda: site.get(f"/batches/{ended}").json["status"] == "COMPLETED")
    for batch_id in (ended, active, UNKNOWN_ID):
        yield "GET", "/batches/{batch_id}", site.get(f"/batches/{batch_id}")
        for query in ("", "?limit=0"):
            yield "GET", "/batches/{batch_id}/items", site.get(f"/batches/{batch_id}/items{query}")
        yield "DELETE", "/batches/{batch_id}", site.ask("DELETE", f"/batches/{batch_id}")
    for body, options in (
        (one, {"key": "refused"}), (one, {"key": "new"}), (one, {}), (one, {"key": "ü"}), ("{", {"key": "k"}),
        (one.replace("a", "b"), {"key": "refused"}), ("[]", {"key": "k"}), ("x" * 30_000_000, {"key": "k"}),
        (one, {"key": "k", "content_type": "text/plain"}), (one.replace("a", "\\u0000"), {"key": "k"}),
    ):  # fmt: skip
        yield "POST", "/batches/refused", site.batch("refused", body, **options)


def refusals(store: Engine) -> Iterator[tuple[str, str, Any]]:
    """Answers of an application whose owner is unknown, and of one whose database is gone."""
    nowhere = create_engine("sqlite:////nowhere/none.sqlite")
    for engine, options in ((store, {"REQUIRE_OWNER": True}), (nowhere, {})):
        with serving(TestJobs(owners=True), engine, **options) as site:
            yield "POST", "/jobs/quick", site.post("quick")
            yield "POST", "/batches/quick", site.batch("quick", '{"items": [{"itemId": "a"}]}', key="k")
            yield "GET", "/batches/{batch_id}", site.get(f"/batches/{UNKNOWN_ID}")
            yield "GET", "/jobs/{job_id}/status", site.status(UNKNOWN_ID)
            yield "DELETE", "/jobs/{job_id}", site.ask("DELETE", f"/jobs/{UNKNOWN_ID}")
    nowhere.dispose()


def test_every_answer_is_documented_with_an_example(site: Site, store: Engine) -> None:
    document = site.get(DOCUMENT).json
    for method, path, response in [*answers(site), *refusals(store)]:
        where = f"{method} {path} {response.status_code}"
        documented = document["paths"][path][method.lower()]["responses"].get(str(response.status_code))
        assert documented, where
        content = documented["content"].get(response.mimetype)
        assert content, where
        jsonschema_rs.validate(resolved(document, content["schema"]), response.get_json(force=True))
        assert content.get("example") or content["examples"], where
        assert response.headers["Cache-Control"] == "no-store"


def test_every_header_of_an_answer_is_documented(site: Site, store: Engine) -> None:
    document = site.get(DOCUMENT).json
    missing = set()
    for method, path, response in [*answers(site), *refusals(store)]:
        documented = document["paths"][path][method.lower()]["responses"][str(response.status_code)]
        names = {name.lower() for name, _ in response.headers} - NOT_DOCUMENTED
        for name in names - {name.lower() for name in documented.get("headers", {})}:
            missing.add(f"{method} {path} {response.status_code}: {name}")
    assert not missing


def test_every_example_fits_its_schema(site: Site) -> None:
    document = site.get(DOCUMENT).json
    for method, path, operation in operations(document):
        for status, response in operation["responses"].items():
            for content in response.get("content", {}).values():
                validator = jsonschema_rs.validator_for(resolved(document, content["schema"]))
                shown = [content["example"]] if "example" in content else []
                shown += [example["value"] for example in content.get("examples", {}).values()]
                assert shown, f"{method} {path} {status}"
                for example in shown:
                    validator.validate(example)


def test_every_problem_that_can_be_sent_has_an_example(site: Site, store: Engine) -> None:
    document = site.get(DOCUMENT).json
    missing = set()
    for method, path, response in [*answers(site), *refusals(store)]:
        problem = response.get_json(force=True)
        documented = document["paths"][path][method.lower()]["responses"][str(response.status_code)]
        if problem.get("type", "") not in json.dumps(documented):
            missing.add(f"{method} {path} {response.status_code}: {problem['type']}")
    assert not missing


@pytest.mark.parametrize("slug", ["unknown-type", "invalid-type", "not-found", "method-not-allowed"])
def test_the_problems_of_other_paths_are_in_the_document(site: Site, slug: str) -> None:
    assert f'"{URN}{slug}"' in site.get(DOCUMENT).text


@pytest.mark.timeout(300)
def test_schemathesis_finds_nothing(site: Site) -> None:
    schema = schemathesis.openapi.from_wsgi(DOCUMENT, site.app)
    for result in schema.get_all_operations():
        operation = result.ok()
        # Any text is an id that may be unknown, so a job's own routes have no invalid requests.
        modes = [GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if "{" not in operation.path else [])]
        for mode in modes:
            fuzz(operation.as_strategy(generation_mode=mode))


def fuzz(cases: Any) -> None:
    """Send twenty generated requests and validate the answers."""

    @settings(
        derandomize=True, max_examples=20, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=cases)
    def check(case: Any) -> None:
        # A schema cannot say that a key was used before, nor that a database cannot hold NUL.
        case.call_and_validate(excluded_checks=[positive_data_acceptance])

    check()


# The page


class Links(HTMLParser):
    """Collects what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in ("src", "href") and value]

    def handle_data(self, data: str) -> None:
        self.scripts += data


@pytest.mark.parametrize("root", ["", "/svc"])
def test_the_page_and_all_it_loads_come_from_the_same_host(site: Site, root: str) -> None:
    page = site.get("/docs/", base_url=f"http://localhost{root}")
    assert (page.status_code, page.mimetype) == (200, "text/html")
    links = Links()
    links.feed(page.text)
    assert len(links.found) >= 2
    assert "//" not in links.scripts
    assert f'"{root}{DOCUMENT}"' in links.scripts
    for link in links.found:
        where = urlsplit(urljoin(f"http://localhost{root}/docs/", link))
        assert where.netloc == "localhost"
        assert site.get(where.path.removeprefix(root)).status_code == 200


def test_the_page_is_where_it_was_asked_to_be(store: Engine) -> None:
    with serving(TestJobs(), store, app=new_app(), DOCS_URL_PREFIX="/reference/jobs") as site:
        assert (
            site.get("/reference/jobs/").status_code == site.get("/reference/jobs/openapi.json").status_code == 200
        )
        assert site.get("/docs/").status_code == 404
