"""Many readers of event streams in one process: `python -m bench.listeners`, told by a line of JSON what to read.

Prints `ready` when each stream has had its first event, and at the end of its input when each later one arrived.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from urllib.parse import urlsplit

AT_ONCE = 16
Arrival = tuple[str, int, float]


async def _read(
    url: str, first: asyncio.Semaphore, ready: list[str], arrivals: list[tuple[str, int, float]]
) -> None:
    target = urlsplit(url)
    async with first:
        reader, writer = await asyncio.open_connection(target.hostname, target.port)
        writer.write(f"GET {target.path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
        status = await reader.readline()
        while not (line := await reader.readline()).startswith(b"data:"):
            if not line:
                raise SystemExit(f"{url} ended before its first event: {status.decode()}")
        ready.append(url)
    while line := await reader.readline():
        if line.startswith(b"id:"):
            arrivals.append((url, int(line[3:]), time.time()))


async def _main() -> None:
    urls = json.loads(sys.stdin.readline())
    first, ready, arrivals = asyncio.Semaphore(AT_ONCE), list[str](), list[Arrival]()
    tasks = [asyncio.create_task(_read(url, first, ready, arrivals)) for url in urls]
    while len(ready) < len(urls):
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(arrivals), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
    raise SystemExit(0)
