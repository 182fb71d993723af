"""Clients of a service: connections that ask as fast as they get answers.

    python -m benchmarks.load PORT SECONDS CLIENTS OUT.json

The first line of standard input is a list of JSON bodies; each client sends them to ``POST /predict`` in an order of
its own, for at least so many seconds and until standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

HEAD = "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n"


async def ask(port: int, bodies: list[Any], go_on: Callable[[], bool], seed: int, out: list[dict[str, Any]]) -> None:
    """One client, with a connection that stays open."""
    rng = random.Random(seed)
    sent = [json.dumps(body).encode() for body in bodies]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while go_on():
        number = rng.randrange(len(sent))
        start = time.perf_counter()
        writer.write(HEAD.format(len(sent[number])).encode() + sent[number])
        status = int((await reader.readline()).split()[1])
        length = 0
        while (line := await reader.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        text = (await reader.readexactly(length)).decode()
        seconds = time.perf_counter() - start
        found = {"client": seed, "body": number, "seconds": seconds, "status": status, "text": text}
        out.append({**found, "time": time.monotonic()})
    writer.close()


async def clients(port: int, bodies: list[Any], seconds: float, count: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    ended, end = threading.Event(), time.monotonic() + seconds

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ended.set()

    def go_on() -> bool:
        return time.monotonic() < end or not ended.is_set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    await asyncio.gather(*(ask(port, bodies, go_on, seed, out) for seed in range(count)))
    return out


def summary(answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Requests per second, median and 99th percentile in milliseconds, and how many requests failed."""
    times, ends = sorted(answer["seconds"] for answer in answers), [answer["time"] for answer in answers]
    return {
        "requests": len(times),
        "failed": sum(answer["status"] != 200 for answer in answers),
        "per_second": len(times) / (max(ends) - min(ends)),
        "median_ms": 1e3 * times[len(times) // 2],
        "p99_ms": 1e3 * times[int(0.99 * len(times))],
    }


if __name__ == "__main__":
    bodies = json.loads(sys.stdin.readline())
    answers = asyncio.run(clients(int(sys.argv[1]), bodies, float(sys.argv[2]), int(sys.argv[3])))
    with open(sys.argv[4], "w", encoding="utf-8") as file:
        json.dump(answers, file)
