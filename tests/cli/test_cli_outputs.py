"""Outputs of ``ergnn run``: a store, LaTeX, figures; and plug-ins that are not installed."""

import json
from pathlib import Path

import pytest

from ergnn.cli.main import main
from fresh import commands

QUICK = ["cora", "--backbone", "sgc", "--selector", "random", "--epochs", "2", "--quiet"]

PLUGIN = '''
from torch import Tensor
from neighbor import PREFER

from ergnn.methods import METHODS
from ergnn.methods.replay import Replay
from ergnn.replay import SELECTORS, SelectionContext, Selector


@SELECTORS.register("by-number", help="smallest or largest numbers")
class ByNumber(Selector):
    def score(self, context: SelectionContext) -> Tensor:
        return (-1 if PREFER == "small" else 1) * context.nodes.float()


@METHODS.register("replay-by-number", help="replay with another default")
class ReplayByNumber(Replay):
    """Replay.

    Args:
        vigor: an option that only this plug-in has.
    """

    def __init__(self, vigor: float = 1.0, per_class: int = 1) -> None:
        super().__init__(selector="by-number", per_class=per_class)
        self.vigor = vigor
'''


def test_runs_are_stored_and_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "my runs"
    assert main(["run", *QUICK, "--seeds", "2", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main(["run", *QUICK, "--seeds", "2", "--json", "--store", str(store)]) == 0
    stored = json.loads(capsys.readouterr().out)
    assert stored["matrix"] == plain["matrix"]
    assert (store / "runs.sqlite").is_file()
    assert main(["runs", "--store", str(store)]) == 0
    assert "2 runs of 1 configurations" in capsys.readouterr().out
    assert main(["report", "--store", str(store), "-o", str(tmp_path / "report.md")]) == 0
    assert "cora" in (tmp_path / "report.md").read_text()

    capsys.readouterr()
    monkeypatch.setattr("ergnn.learning.observing.train_in_phases", lambda *args, **kwargs: pytest.fail("again"))
    assert main(["run", *QUICK, "--seeds", "2", "--json", "--store", str(store / "runs.sqlite")]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["matrix"] == plain["matrix"]
    assert "2 of 2 runs were already in" in err


def test_a_resumable_run_is_stored_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--checkpoint", str(tmp_path / "states"), "--store", str(tmp_path / "runs.sqlite")]
    assert main(["run", *QUICK, "--seeds", "1", *files]) == 0
    capsys.readouterr()
    assert main(["runs", "--store", str(tmp_path / "runs.sqlite"), "--json"]) == 0
    assert [run["seed"] for run in json.loads(capsys.readouterr().out)] == [0]
    assert main(["run", *QUICK, "--seeds", "2", *files, "--json"]) == 0
    out, err = capsys.readouterr()
    assert [run["seed"] for run in json.loads(out)["runs"]] == [0, 1]
    assert "1 of 2 runs were already in" in err
    assert "tasks are already done" not in err, "a stored run needs no checkpoint"


def test_latex_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *QUICK, "--seeds", "2", "--latex"]) == 0
    text = capsys.readouterr().out
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 2
    assert "after task 3 & " in text
    assert "PM performance mean & " in text


def test_figures(tmp_path: Path) -> None:
    path = tmp_path / "figure.svg"
    assert main(["run", *QUICK, "--seeds", "2", "--plot", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert all(word in text for word in ("cora · sgc · replay", "accuracy (%)"))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--plot", "figure.gif"], "figure.gif: a figure is written as one of: .svg, .png, .pdf"),
        (["--plot", "nowhere/figure.svg"], "no such folder"),
        (["--import", "nowhere.py"], "--import nowhere.py: no such file"),
    ],
)
def test_unwritable_outputs_and_broken_imports_are_rejected_before_training(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str], no_training: None
) -> None:
    assert main(["run", *QUICK, *argv]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_plug_in_file_adds_names_and_options(tmp_path: Path) -> None:
    (tmp_path / "plug in.py").write_text(PLUGIN)
    (tmp_path / "neighbor.py").write_text('PREFER = "small"\n')
    plugin = ["--import", str(tmp_path / "plug in.py")]
    method = ["--method", "replay-by-number", *plugin]
    run, init, result, methods = commands(
        ["run", "--help", *method],
        ["init", "--help", *method],
        ["run", "cora", "--backbone", "sgc", "--epochs", "1", "--json", "--seeds", "1", "--vigor", "3", *method],
        ["methods", *plugin],
    )
    assert "--vigor" in run.out
    assert "--vigor" in init.out
    assert json.loads(result.out)["method_options"]["vigor"] == 3.0
    assert "replay-by-number" in methods.out


def test_a_plug_in_that_fails_is_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.py").write_text("import torch\nnonsense\n")
    assert main(["datasets", "--import", str(tmp_path / "broken.py")]) == 2
    error = capsys.readouterr().err
    assert "broken.py: cannot be imported (NameError: name 'nonsense' is not defined)" in error
    assert error.count("\n") == 1
