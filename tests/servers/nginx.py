"""nginx in front of an application, with its defaults and nothing else unless a test asks."""

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.servers.processes import free_port, start_process
from tests.waiting import wait_until

START_TIMEOUT = 10
SETTINGS = """
daemon off;
master_process off;
pid {home}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log {home}/access.log;
    {temporary}
    gzip on;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass {upstream};
            {extra}
        }}
    }}
}}
"""
KINDS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@contextmanager
def nginx_before(upstream: str, home: Path, extra: str = "") -> Iterator[str]:
    """Run nginx before the application at `upstream` and give its address; `extra` goes into its `location`."""
    port, log, settings = free_port(), home / "nginx.log", home / "nginx.conf"
    temporary = "\n    ".join(f"{kind}_temp_path {home}/{kind};" for kind in KINDS)
    settings.write_text(SETTINGS.format(home=home, temporary=temporary, port=port, upstream=upstream, extra=extra))
    program = str(shutil.which("nginx"))
    process = start_process([program, "-p", str(home), "-e", "stderr", "-c", str(settings)], log, cwd=home)
    try:
        wait_until(lambda: process.poll() is not None or _listens(port), START_TIMEOUT, log.read_text)
        assert process.poll() is None, log.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
