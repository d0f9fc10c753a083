"""The URLs that are given out lead back, whatever stands in front of the application."""

import json
from typing import Any

import httpx
import pytest

from tests.acceptance.apps.harness import Consumer, client

pytest_plugins = ["tests.acceptance.apps.fixtures"]
pytestmark = pytest.mark.acceptance

PUBLIC = "https://api.example/svc/"
FORWARDED = {
    "X-Forwarded-For": "203.0.113.9",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "api.example",
    "X-Forwarded-Prefix": "/svc",
}
URLS = ("statusUrl", "eventsUrl", "logUrl", "operationUrl", "cancelUrl")


class Proxy(httpx.BaseTransport):
    """Ends TLS for https://api.example, takes /svc off the path, and says so in `X-Forwarded-*`."""

    def __init__(self, inner: str) -> None:
        self._inner = inner
        self._http = client()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        outer = str(request.url)
        assert outer.startswith(PUBLIC), outer
        url = f"{self._inner}/{outer.removeprefix(PUBLIC)}"
        headers = {**{name: value for name, value in request.headers.items() if name != "host"}, **FORWARDED}
        answer = self._http.request(request.method, url, headers=headers, content=request.read())
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def close(self) -> None:
        self._http.close()


def test_with_proxy_fix_every_url_is_the_public_one_and_can_be_followed(consumer: Consumer) -> None:
    served = consumer.serve(server="flask", PROXY_FIX="1")
    with httpx.Client(base_url=PUBLIC, transport=Proxy(served.url)) as public:
        accepted = public.post("jobs/quick")
        follow_all(public, accepted, PUBLIC)
        consumer.wait_for_states(COMPLETED=1)
        failing = public.post("jobs/boom", json={"text": "no"})
        consumer.wait_for_states(COMPLETED=1, FAILED=1)
        failed = public.get(failing.headers["Location"])
        assert (failed.status_code, failed.json()["instance"]) == (422, failing.headers["Location"])
        assert public.delete(accepted.json()["cancelUrl"]).status_code == 409


def test_without_proxy_fix_the_headers_of_a_proxy_are_ignored(consumer: Consumer) -> None:
    served = consumer.serve(server="flask")
    accepted = consumer.submit("quick", headers=FORWARDED)
    follow_all(consumer.http, accepted, f"{served.url}/")
    failed = consumer.run("boom", {"text": "no"})
    assert failed.json()["instance"].startswith(f"{served.url}/")


def test_below_a_script_name_every_url_can_be_followed(consumer: Consumer) -> None:
    served = consumer.serve(SCRIPT_NAME="/mounted")
    consumer.http.base_url = f"{served.url}/mounted"
    follow_all(consumer.http, consumer.submit("quick"), f"{served.url}/mounted/")


def test_the_url_of_a_result_and_the_redirect_to_it_are_public_ones(consumer: Consumer) -> None:
    options = {"ret": {"redirect": True}, "quick": {"result_url": "process"}, "slow": {"result_url": "/{job_id}"}}
    consumer.serve(server="flask", PROXY_FIX="1", HANDLERS=json.dumps(options), sse_poll_interval=0.1)
    with httpx.Client(base_url=PUBLIC, transport=Proxy(consumer.server.url), timeout=30) as public:
        held = public.post("jobs/ret", json={"value": {"listing": 17}}, headers={"Prefer": "wait=10"})
        job_id = held.json()["jobId"]
        assert (held.status_code, held.headers["Location"]) == (303, f"{PUBLIC}jobs/{job_id}/result")
        for method, path in (("GET", f"jobs/{job_id}/status"), ("HEAD", f"jobs/{job_id}")):
            answer = public.request(method, path, headers={"If-None-Match": "*"})
            assert (answer.status_code, answer.headers["Location"]) == (303, held.headers["Location"])
        assert public.get(f"jobs/{job_id}", follow_redirects=True).json() == {"listing": 17}
        for type, payload, path in (("quick", None, "?job_id={id}"), ("slow", {"n": 0.1}, "{id}")):
            job = public.post(f"jobs/{type}", json=payload or {}, headers={"Prefer": "wait=10"}).json()
            assert job["resultUrl"] == PUBLIC + path.format(id=job["jobId"])
            assert f'"resultUrl": "{job["resultUrl"]}"' in public.get(f"jobs/{job['jobId']}/events").text
        assert public.get(f"?job_id={job_id}").json()["pid"]


def test_below_a_script_name_the_redirect_can_be_followed(consumer: Consumer) -> None:
    served = consumer.serve(SCRIPT_NAME="/mounted", HANDLERS=json.dumps({"ret": {"redirect": True}}))
    consumer.http.base_url = f"{served.url}/mounted"
    held = consumer.submit("ret", {"value": 17}, headers={"Prefer": "wait=10"})
    assert (held.status_code, held.headers["Location"]) == (303, held.json()["resultUrl"])
    assert consumer.http.get(held.headers["Location"]).json() == 17


def follow_all(http: httpx.Client, accepted: httpx.Response, root: str) -> None:
    """Check that all URLs of a 202 lie under `root`, and that those which are served lead to the job."""
    body: dict[str, Any] = accepted.json()
    given = [accepted.headers["Location"], accepted.headers["Operation-Location"], *(body[name] for name in URLS)]
    assert accepted.status_code == 202
    assert [url for url in given if not url.startswith(f"{root}jobs/{body['jobId']}")] == []
    for url in (body["statusUrl"], body["operationUrl"], body["cancelUrl"], *given[:2]):
        answer = http.get(url)
        assert answer.status_code == 200, url
        assert body["jobId"] in (answer.json().get("jobId"), answer.json().get("id"))
