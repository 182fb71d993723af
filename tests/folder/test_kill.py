"""SIGKILL at any moment: the last version answers, and the update that goes on ends with the same rows."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest

from ergnn.folder import LearnerFolder
from folder.forks import run_command
from folder.growing import make_updates, quick, tables, write_tables

SAME = ("blobs", "remembered", "classes", "nodes", "labels", "adjacency", "settings")


class Scene:
    """A folder after two updates, the files of a third, and how it ends when nothing goes wrong."""

    def __init__(self, place: Path) -> None:
        self.place, self.base = place, place / "base"
        updates = make_updates(3, nodes=60)
        folder = LearnerFolder.create(self.base, quick(epochs=12))
        for nodes, edges in updates[:2]:
            folder.observe(nodes, edges)
        self.files = write_tables(place / "third", *updates[2])
        self.ids = place / "ids.csv"
        self.ids.write_text("id\n" + "\n".join(f"n{i}" for i in range(120)) + "\n")
        self.before = self.predict(self.base)
        whole = self.fresh("whole")
        self.events = 0
        answers = [self.observe(self.fresh(f"whole{i}") if i else whole) for i in range(2)]
        assert [answer["status"] for answer in answers] == [0, 0], answers
        self.seconds, self.events = answers[1]["seconds"], answers[1]["events"]
        self.end, self.after = self.read(whole), self.predict(whole)

    def fresh(self, name: str) -> Path:
        path = self.place / name
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.base, path)
        return path

    def observe(self, folder: Path, *, seconds: float = 0, files: bool = True, **kill: float) -> dict:
        """Observe the third update, or go on with it; ``seconds`` between checkpoints."""
        given = ["--nodes", self.files[0], "--edges", self.files[1]] if files else ["--resume"]
        return run_command("observe", folder, *given, "--checkpoint-seconds", seconds, "--quiet", **kill)

    def predict(self, folder: Path) -> list[list[str]]:
        out = self.place / "predictions.csv"
        answer = run_command("predict", folder, "--nodes", self.ids, "-o", out)
        assert answer["status"] == 0, answer
        with open(out, newline="") as file:
            return list(csv.reader(file))

    @staticmethod
    def read(folder: Path) -> dict[str, list[dict[str, object]]]:
        """Weights, remembered nodes and graph of all versions."""
        found = tables(LearnerFolder(folder))
        assert [row["version"] for row in found["versions"]] == [0, 1, 2, 3]
        assert not found["progress"]
        return {name: found[name] for name in SAME}

    def check(self, name: str, *kills: dict[str, float]) -> int:
        """Kill as told, look, go on, and compare; says how many kills came in time."""
        folder, hits = self.fresh(name), 0
        for kill in kills:
            answer = self.observe(folder, **kill)
            hits += answer["status"] == -9
            assert answer["status"] in (0, -9), answer
            assert self.predict(folder) in (self.before, self.after)
        if hits % 2 and tables(LearnerFolder(folder))["progress"]:
            answer = self.observe(folder, files=False)  # what was begun is in the folder
        else:
            answer = self.observe(folder)
        assert answer["status"] == 0, answer
        assert self.read(folder) == self.end
        assert LearnerFolder(folder).check() == []
        shutil.rmtree(folder)
        return hits


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("kill"))


@pytest.mark.parametrize("count", [1, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_at_random_moments(count: int, scene: Scene) -> None:
    rng, hits = np.random.default_rng(count), 0
    while hits < count:
        hits += scene.check("random", {"kill_after": float(rng.random() * scene.seconds)})


def test_killed_at_commits_and_again_while_going_on(scene: Scene) -> None:
    for at in np.linspace(1, scene.events, 3)[1:].astype(int):
        assert scene.check("commit", {"kill_at": int(at)}, {"kill_at": max(1, int(at) // 2)}) >= 1


@pytest.mark.slow
def test_killed_at_every_commit(scene: Scene) -> None:
    """Just before and just after each, those of a checkpoint after every epoch included."""
    assert all(scene.check("commit", {"kill_at": at}) == 1 for at in range(1, scene.events + 1))


def test_resuming_goes_on_within_the_task(scene: Scene) -> None:
    folder = scene.fresh("within")
    assert scene.observe(folder, kill_at=scene.events // 2)["status"] == -9
    assert tables(LearnerFolder(folder))["checkpoint"]
    again = scene.observe(folder, files=False)
    assert again["status"] == 0
    assert again["events"] < 0.75 * scene.events  # a checkpoint an epoch: fewer epochs were left
    assert scene.read(folder) == scene.end


def test_another_update_must_wait_until_the_first_is_finished_or_dropped(scene: Scene) -> None:
    folder = scene.fresh("other")
    assert scene.observe(folder, kill_at=scene.events // 2)["status"] == -9
    answer = run_command("observe", folder, "--edges", scene.files[1])
    assert answer["status"] == 2
    assert "is unfinished" in answer["error"]
    assert run_command("observe", folder, "--discard")["status"] == 0
    assert not tables(LearnerFolder(folder))["progress"]
    assert scene.observe(folder)["status"] == 0
    assert scene.read(folder) == scene.end
