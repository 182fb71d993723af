"""Malformed and hostile requests are refused with one line, in bounded memory, and change nothing."""

import random
from pathlib import Path

import pytest

from ergnn.folder import LearnerFolder
from folder.growing import tables
from serve.hostile import make_request
from serve.running import Server

GROWTH = 400 << 20
"""Bytes that the server may grow by; the tables that are sent would take gigabytes."""


@pytest.mark.parametrize("count", [150, pytest.param(2000, marks=pytest.mark.slow)])
def test_hostile_requests(count: int, root: Path) -> None:
    before = tables(LearnerFolder(root))
    server = Server(root, "--max-update-megabytes", "16")
    try:
        answer = server.client.post("/predict", json={"ids": ["n1", "n60"]}).json()
        server.client.get("/")
        memory, rng = server.memory(), random.Random(0)
        for number in range(count):
            request = make_request(rng)
            reply = server.client.request(**request)
            said = f"{number}: {request['method']} {request['url']}: {reply.status_code} {reply.text[:300]}"
            assert 400 <= reply.status_code < 500, said
            assert list(reply.json()) == ["error"], said
            assert 3 < len(reply.json()["error"]) <= 500, said
            assert "\n" not in reply.json()["error"], said
            assert "Traceback" not in reply.text, said
            assert str(root) not in reply.text, said
        assert server.client.post("/predict", json={"ids": ["n1", "n60"]}).json() == answer
        assert server.client.get("/updates").json() == {"updates": []}
        assert server.memory() - memory < GROWTH
        assert "Traceback" not in server.said(), server.said()
    finally:
        server.close()
    assert tables(LearnerFolder(root)) == before
    assert not [path for path in (root / "spool").iterdir() if path.is_dir()]
