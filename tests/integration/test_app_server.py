import signal
from pathlib import Path

import httpx
import pytest

from tests.serving import Serve
from tests.waiting import wait_until

APPLICATION = """
import os
from flask import Flask

{head}app = Flask(__name__)
{indent}app.add_url_rule("/", view_func=lambda: os.environ.get("GREETING", "hello"))
{tail}
"""
PLAIN = APPLICATION.format(head="", indent="", tail="")
FACTORY = APPLICATION.format(head="def create_app():\n    ", indent="    ", tail="    return app")


@pytest.fixture(params=[PLAIN, FACTORY], ids=["app", "create_app"])
def application(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "hello.py"
    path.write_text(request.param)
    return path


@pytest.mark.parametrize(
    ("server", "debug", "args"),
    [("flask", False, []), ("flask", True, []), ("gunicorn", False, ["--workers", "2"])],
    ids=["flask", "reloader", "gunicorn"],
)
def test_an_application_is_served_and_ends_on_a_signal(
    serve: Serve, application: Path, server: str, debug: bool, args: list[str]
) -> None:
    served = serve(application, *args, server=server, debug=debug, env={"GREETING": "good morning"})
    assert httpx.get(served.url).text == "good morning"
    served.terminate(signal.SIGTERM)
    assert served.wait() in (0, -signal.SIGTERM)
    with pytest.raises(httpx.TransportError):
        httpx.get(served.url)


def test_a_server_that_was_killed_starts_again_on_its_port(serve: Serve, application: Path) -> None:
    served = serve(application, "--workers", "2", server="gunicorn")
    url = served.url
    served.kill()
    assert not served.is_running
    served.start()
    assert served.url == url
    assert httpx.get(url).text == "hello"


def test_the_reloader_takes_up_a_change(serve: Serve, tmp_path: Path) -> None:
    application = tmp_path / "hello.py"
    application.write_text(PLAIN)
    served = serve(application, debug=True)
    assert httpx.get(served.url).text == "hello"
    application.write_text(PLAIN.replace('"hello"', '"changed"'))
    wait_until(lambda: _text(served.url) == "changed", message="the new code")


def test_an_application_that_cannot_start_says_why(serve: Serve, tmp_path: Path) -> None:
    application = tmp_path / "broken.py"
    application.write_text("import no_such_module\n")
    with pytest.raises(RuntimeError, match="no_such_module"):
        serve(application)


def _text(url: str) -> str:
    try:
        return httpx.get(url).text
    except httpx.TransportError:
        return ""
