"""Connections that send nothing or half a header: they are closed in time, and leave room for others."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from serve.running import SECONDS, Server

HALF = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-"


@contextmanager
def crowd(port: int, idle: int, half: int) -> Iterator[list[socket.socket]]:
    """Connections that send nothing, and connections that send half a header."""
    with ExitStack() as stack:
        sockets = []
        for number in range(idle + half):
            sockets.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS)))
            if number >= idle:
                try:
                    sockets[-1].sendall(HALF)
                except OSError:  # it was closed at once
                    continue
        yield sockets


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server closes a connection."""
    try:
        return not connection.recv(1)
    except ConnectionError:
        return True


def test_idle_connections_are_closed_and_leave_room(root: Path) -> None:
    server = Server(root, "--max-connections", "8", "--max-seconds", "2")
    with crowd(server.port, 20, 20) as sockets:
        assert httpx.get(f"{server.url}/health", timeout=SECONDS).status_code == 200
        assert all(map(is_closed, sockets))
    with httpx.Client(base_url=server.url, timeout=SECONDS) as client:  # requests are not connections that idle
        for _ in range(12):
            assert client.get("/health").status_code == 200
            time.sleep(0.3)
    log = server.said()
    server.close()
    assert log.count("\n") == log.count("connections are open, at most 8 may be: idle ones are closed") == 1, log


def test_a_body_that_does_not_arrive(root: Path) -> None:
    server = Server(root, "--max-seconds", "1")
    with socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) as slow:
        slow.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        answer = b""
        while chunk := slow.recv(4096):
            answer += chunk
    server.close()
    assert b"408 Request Timeout" in answer
    assert b"the request did not arrive within 1 seconds" in answer


@pytest.mark.slow
def test_300_idle_connections_and_300_half_headers_with_256_descriptors(root: Path) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(2000, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),) * 2)
    server = Server(root, files=256)
    times = []
    with crowd(server.port, 300, 300):
        for _ in range(20):
            start = time.monotonic()
            assert httpx.get(f"{server.url}/health", timeout=1).json()["status"] == "ok"
            times.append(time.monotonic() - start)
            time.sleep(0.25)
        assert httpx.post(f"{server.url}/predict", json={"ids": ["n1"]}, timeout=SECONDS).status_code == 200
    log = server.said()
    server.close()
    print(f"600 connections: /health took at most {max(times):.3f} s; the log has {log.count(chr(10))} line(s)")
    assert log.count("\n") == 1, log
