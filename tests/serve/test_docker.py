"""The instructions of the Dockerfile are carried out without docker and without a network."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import httpx
import pytest
import yaml

from serve.running import SECONDS

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-for-the-test-of-docker"


def instructions() -> Iterator[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.partition(" ")
            yield word, rest.strip()


def sent(path: str) -> bool:
    """Whether a path is sent to the builder: by the last pattern of .dockerignore that fits."""
    found = True
    for line in (ROOT / ".dockerignore").read_text().split():
        if fnmatch(path, line.removeprefix("!")):
            found = line.startswith("!")
    return found


def copy_to(app: Path) -> None:
    """The COPY instructions."""
    for _, rest in (one for one in instructions() if one[0] == "COPY"):
        *sources, target = rest.split()
        for source in sources:
            assert sent(source), f"{source} is not sent to the builder"
            if (ROOT / source).is_dir():
                ignore = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / source, app / target, ignore=ignore, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / source, app / target)


def entry_point(app: Path) -> tuple[str, str]:
    """The module and the function of the command; the files that the project names must be there."""
    project = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["src/ergnn"]
    assert all((app / file).is_file() for file in (project["project"]["readme"], *project["project"]["license-files"]))
    module, _, function = project["project"]["scripts"]["ergnn"].partition(":")
    return module, function


@pytest.mark.slow
def test_its_instructions(place: Path, tmp_path: Path) -> None:
    app, programs = tmp_path / "app", tmp_path / "bin"
    app.mkdir()
    programs.mkdir()
    copy_to(app)
    runs = [rest for word, rest in instructions() if word == "RUN"]
    assert any(re.search(r"\btorch$", run) for run in runs)
    assert any(re.fullmatch(r'pip install "\.\[serve\b.*\]"', run) for run in runs)
    module, function = entry_point(app)
    script = programs / "ergnn"
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    script.chmod(0o755)
    learner = tmp_path / "learner"
    shutil.copytree(place / "base", learner)
    words = dict(instructions())
    command = [word.replace("/learner", str(learner)) for word in json.loads(words["CMD"])]
    port = command[command.index("--port") + 1]
    assert port == words["EXPOSE"]
    environment = {**os.environ, **dict(pair.split("=", 1) for pair in shlex.split(words["ENV"]))}
    environment |= {"PYTHONPATH": str(app / "src"), "PATH": f"{programs}:{os.environ['PATH']}", "ERGNN_TOKEN": TOKEN}
    with httpx.Client(timeout=SECONDS) as client:
        server = subprocess.Popen([*command[:-1], "0"], env=environment, stdout=subprocess.PIPE, text=True, cwd=app)
        try:
            found = re.search(r":(\d+)$", server.stdout.readline().strip())
            assert found
            url = f"http://127.0.0.1:{found[1]}"
            check = json.loads(words["HEALTHCHECK"].partition("CMD ")[2])
            health = [sys.executable, check[1], check[2].replace(f"127.0.0.1:{port}", f"127.0.0.1:{found[1]}")]
            end = time.monotonic() + SECONDS
            while subprocess.run(health, capture_output=True).returncode:
                assert time.monotonic() < end
                assert server.poll() is None
            assert client.post(f"{url}/predict", json={"ids": ["n1"]}).status_code == 401
            headers = {"authorization": f"Bearer {TOKEN}"}
            answer = client.post(f"{url}/predict", json={"ids": ["n1"]}, headers=headers)
            assert answer.json()["version"] == 2
            prometheus = yaml.safe_load((ROOT / "prometheus.yml").read_text())
            (job,) = prometheus["scrape_configs"]
            assert client.get(f"{url}{job.get('metrics_path', '/metrics')}", headers=headers).status_code == 200
        finally:
            server.terminate()
            server.wait()
            server.stdout.close()  # type: ignore[union-attr]


def test_compose() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    service, prometheus = compose["services"]["ergnn"], compose["services"]["prometheus"]
    from ergnn.cli.main import make_parser

    options = make_parser().parse_args(service["command"][1:])
    (job,) = yaml.safe_load((ROOT / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"ergnn:{options.port}"]
    assert options.token_file == job["authorization"]["credentials_file"] == "/run/secrets/token"
    assert service["secrets"] == prometheus["secrets"] == list(compose["secrets"])
    assert service["volumes"][0].endswith(f":{options.folder}")
    assert all(port.startswith("127.0.0.1:") for one in compose["services"].values() for port in one["ports"])
    assert (ROOT / prometheus["volumes"][0].split(":")[0]).is_file()
