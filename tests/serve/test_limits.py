"""Who may ask, how much, and how long; whatever is wrong is one line of JSON."""

import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import pytest
from fastapi.testclient import TestClient

from ergnn.cli.main import main
from ergnn.config.limits import ServeLimits
from ergnn.folder.spool import Spool
from ergnn.serve.app import make_app
from ergnn.serve.service import Service

TOKEN = "0123456789abcdef-secret"


def problem(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    (text,) = answer.json().values()
    assert "\n" not in text
    assert "Traceback" not in text
    return str(text)


def basic(password: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f'me:{password}'.encode()).decode()}"}


def test_a_token(root: Path) -> None:
    with TestClient(make_app(Service(root), TOKEN), "http://model.example") as client:
        assert client.get("/health").status_code == 200
        wrong: list[dict[str, str]] = [{}, {"authorization": "Bearer"}, {"authorization": f"Bearer {TOKEN}x"}]
        wrong += [{"authorization": TOKEN}, {"authorization": "Basic ?"}, basic(TOKEN[:-1])]
        for headers in wrong:
            for path in ("/", "/versions", "/metrics", "/docs", "/openapi.json", "/nowhere"):
                refused = client.get(path, headers=headers)
                assert "a token is needed" in problem(refused, 401)
                assert refused.headers["www-authenticate"].startswith("Bearer")
        for headers in ({"authorization": f"Bearer {TOKEN}"}, basic(TOKEN)):
            assert client.get("/versions", headers=headers).status_code == 200
            assert client.get("/", headers=headers).status_code == 200


def test_other_sites_and_other_names(reader: TestClient) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "[", ""):
        assert "only requests to localhost" in problem(reader.get("/versions", headers={"host": host}), 403)
    for host in ("localhost:8000", "127.0.0.1", "[::1]:80"):
        assert reader.get("/versions", headers={"host": host}).status_code == 200
    for origin in ("http://evil.example", "null", "http://localhost:1"):
        refused = reader.post("/rollback", json={}, headers={"origin": origin})
        assert "other sites" in problem(refused, 403)
    same = reader.post("/predict", json={"ids": ["n0"]}, headers={"origin": "http://localhost"})
    assert same.status_code == 200


@pytest.fixture(scope="module")
def tight(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    root = tmp_path_factory.mktemp("tight") / "learner"
    shutil.copytree(place / "base", root)
    limits = ServeLimits(predict_rows=3, update_rows=4, predict_megabytes=1, update_megabytes=2, features=20)
    with TestClient(make_app(Service(root, limits)), "http://localhost") as client:
        yield client


def test_size_and_rows(tight: TestClient) -> None:
    assert "ids: 4 rows; at most 3" in problem(tight.post("/predict", json={"ids": ["n0"] * 4}), 413)
    long = tight.post("/predict", content=b'{"ids": ["' + b"x" * (1 << 20) + b'"]}')
    assert "larger than 1 MB" in problem(long, 413)
    csv = {"content-type": "text/csv"}
    rows = b"id\n" + b"".join(b"n%d\n" % i for i in range(5))
    assert "5 nodes; at most 4" in problem(tight.post("/observe", content=rows, headers=csv), 422)
    assert "larger than 2 MB" in problem(tight.post("/observe", content=bytes(3 << 20), headers=csv), 413)
    wide = {"nodes": [{"id": "new", "features": {"20": 1.0}}]}
    assert "21 features; at most 20" in problem(tight.post("/predict", json=wide), 422)


def test_a_body_without_a_length_is_counted(tight: TestClient) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(64):
            sent += 1
            yield bytes(1 << 18)

    answer = tight.post("/observe", content=endless(), headers={"content-type": "text/csv"})
    assert "larger than 2 MB" in problem(answer, 413)


def test_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = Event()
    monkeypatch.setattr("ergnn.serve.app.read_upload", lambda *args: answered.wait(60))
    service = Service(root, ServeLimits(seconds=2))
    with TestClient(make_app(service), "http://localhost") as client:
        answer = client.post("/observe", content=b"id\nn0\n", headers={"content-type": "text/csv"})
        answered.set()
        assert not service.spool.unfinished()
    assert "not finish within 2 seconds" in problem(answer, 503)


def test_an_update_that_is_being_accepted_is_accepted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not refused and learned nevertheless, so that a client that sends it again does not add it twice."""
    add = Spool.add

    def slow(*args: Any) -> Any:
        sleep(2)
        return add(*args)

    monkeypatch.setattr(Spool, "add", slow)
    service = Service(root, ServeLimits(seconds=1))
    with TestClient(make_app(service), "http://localhost") as client:
        answer = client.post("/observe", content=b"id\nn0\n", headers={"content-type": "text/csv"})
    assert (answer.status_code, list(service.spool.jobs)) == (202, [1])


def test_bugs_are_not_shown(tight: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def bug(*args: object, **more: object) -> None:
        raise RuntimeError("secret of the house")

    monkeypatch.setattr("ergnn.folder.snapshot.Snapshot.predict", bug)
    text = problem(tight.post("/predict", json={"ids": ["n0"]}), 500)
    assert "secret" not in text
    assert "secret" in caplog.text, "the log has it"


def test_unknown_places(reader: TestClient) -> None:
    for path in ("/nowhere", "/updates/7", "/predict/..%2f..%2fetc", "/static/../../x"):
        problem(reader.get(path), 404)
    problem(reader.get("/updates/..%2f..%2fetc%2fpasswd"), 404)
    problem(reader.get("/updates/abc"), 422)
    problem(reader.get("/predict"), 405)
    problem(reader.put("/observe"), 405)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0: without a token only this machine may connect"),
        (["--max-queued", "0"], "max_queued is 0; it must be above 0"),
        (["--token-file", "no-such-file"], "--token-file no-such-file: cannot be read"),
        (["--port", "99999"], "--port 99999: ports are 0 to 65535"),
    ],
)
def test_options_are_checked(options: list[str], said: str, root: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("ERGNN_TOKEN", raising=False)
    assert main(["serve", str(root), *options]) == 2
    assert said in capsys.readouterr().err


def test_a_short_token_and_no_folder(root: Path, tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("ERGNN_TOKEN", "short")
    for folder, message in ((root, "the token has 5 characters; at least 16"), (tmp_path / "none", "no such folder")):
        assert main(["serve", str(folder)]) == 2
        assert message in capsys.readouterr().err
        monkeypatch.delenv("ERGNN_TOKEN", raising=False)
    assert not (tmp_path / "none").exists()


def test_without_the_extra() -> None:
    """The package and the command line import without FastAPI, and the command says what to install."""
    code = """
import sys
for name in ("fastapi", "uvicorn", "prometheus_client", "python_multipart", "starlette", "pydantic", "anyio"):
    sys.modules[name] = None
import ergnn.folder
from ergnn.cli.main import main
sys.exit(main(["serve", "nowhere"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "ergnn serve needs fastapi" in done.stderr
    assert "pip install 'ergnn[serve]'" in done.stderr
