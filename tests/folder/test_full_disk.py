"""The commands on a real file system that is full: no traceback, nothing lost, and the same command works later."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ergnn.cli.main import main
from folder.disk import fill, mounted
from folder.growing import ids_file, make_updates, write_tables


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    with mounted(tmp_path / "disk", 512 * 1024) as place:
        yield place


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """Expects a command to end with one line that says why."""

    def check(*words: str) -> None:
        capsys.readouterr()
        assert main(words) == 2
        error = capsys.readouterr().err
        assert error.startswith("ergnn: ")
        assert error.count("\n") == 1
        assert "full" in error or "No space left" in error, error

    return check


@pytest.fixture
def scores(capsys: pytest.CaptureFixture[str]) -> Callable[[str], list[dict[str, Any]]]:
    def read(root: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["evaluate", root, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["updates"]

    return read


NETWORK = ["--backbone", "gcn", "--backbone-options", "hidden=4", "--epochs", "4"]
SMALL = ["--method", "replay", *NETWORK, "--per-class", "2"]


def test_init_observe_and_forget_on_a_full_disk(
    tiny_disk: Path, tmp_path: Path, refused: Callable[..., None], scores: Callable[[str], list[dict[str, Any]]]
) -> None:
    root = str(tiny_disk / "learner")
    files = [tuple(map(str, write_tables(tmp_path / f"week{i}", *update))) for i, update in enumerate(make_updates(2))]
    updates = [["observe", root, "--nodes", nodes, "--edges", edges, "--quiet"] for nodes, edges in files]

    filler = fill(tiny_disk)
    refused("init", root, *SMALL)
    filler.unlink()
    assert main(["init", root, *SMALL]) == 0
    assert main(updates[0]) == 0
    before = scores(root)

    filler = fill(tiny_disk)
    refused(*updates[1], "--checkpoint-seconds", "0")
    filler.unlink()
    assert scores(root) == before
    assert main(updates[1]) == 0  # the same command
    assert len(scores(root)) == 2

    forgotten, filler = ["forget", root, "--nodes", ids_file(tmp_path, ["n0"])], fill(tiny_disk)
    refused(*forgotten)
    filler.unlink()
    assert main(forgotten) == 0
    assert main(["inspect", root, "--check"]) == 0

    found = scores(root)
    filler = fill(tiny_disk)
    refused("rollback", root)
    filler.unlink()
    assert scores(root) == found
    assert main(["rollback", root]) == 0
    assert main(["inspect", root, "--check"]) == 0


def test_files_of_other_commands_on_a_full_disk_are_whole_or_not_there(
    tiny_disk: Path, tmp_path: Path, refused: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(tmp_path / "learner")
    nodes, edges = map(str, write_tables(tmp_path / "week", *make_updates(1)[0]))
    assert main(["init", root, *SMALL]) == 0
    assert main(["observe", root, "--nodes", nodes, "--edges", edges]) == 0
    filler = fill(tiny_disk)
    refused("inspect", root, "-o", str(tiny_disk / "page.html"))
    refused("predict", root, "--nodes", nodes, "-o", str(tiny_disk / "predictions.csv"))
    refused("export", root, "-o", str(tiny_disk / "model.safetensors"))
    quick = ["--backbone", "sgc", "--epochs", "1", "--seeds", "1", "--quiet"]
    runs, store = ["run", "cora", *quick], ["--store", str(tiny_disk / "runs")]
    refused(*runs, *store)
    capsys.readouterr()
    assert main([*runs, "--plot", str(tiny_disk / "figure.svg")]) == 2
    shown = capsys.readouterr()
    assert "PM" in shown.out  # results are printed all the same
    assert shown.err.startswith("ergnn: ")
    assert shown.err.endswith("cannot be written (No space left on device)\n")
    assert sorted(path.name for path in tiny_disk.iterdir()) == ["filler", "runs"]
    filler.unlink()
    assert main(["inspect", root, "-o", str(tiny_disk / "page.html")]) == 0
    assert main([*runs, *store]) == 0

    (tiny_disk / "report.md").write_text("an earlier report")
    elsewhere = str(tmp_path / "runs.sqlite")
    assert main([*runs, "--store", elsewhere]) == 0
    filler = fill(tiny_disk)
    refused("report", "--store", elsewhere, "-o", str(tiny_disk / "report.md"))
    assert (tiny_disk / "report.md").read_text() == "an earlier report"
    refused(*runs, *store, "--lr", "0.1")
    filler.unlink()
    capsys.readouterr()
    assert main([*runs, *store, "--json"]) == 0
    assert "1 of 1 runs were already in" in capsys.readouterr().err
    assert main([*runs, *store, "--lr", "0.1"]) == 0
    assert main(["report", *store, "-o", str(tiny_disk / "report.html")]) == 0
