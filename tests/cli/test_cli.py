"""The command line: in-process, and twice in a separate process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ergnn.cli.main import main
from ergnn.config.registry import Registry
from ergnn.data import DATASETS
from ergnn.lab.config import DEFAULTS, RunConfig
from ergnn.lab.run import run
from ergnn.methods import METHODS
from ergnn.nn.backbones import BACKBONES
from ergnn.replay import SELECTORS

QUICK = ("--backbone", "sgc", "--split", "seeded", "--seeds", "2", "--epochs", "3")
NOT_NUMBERS = ("seconds", "train_seconds", "select_seconds", "peak_memory_mb")


@pytest.fixture
def json_of(capsys: pytest.CaptureFixture[str]):
    """Run ``ergnn run … --json`` and read the object that it prints."""

    def call(*argv: str) -> dict[str, Any]:
        assert main(["run", *argv, "--json"]) == 0
        out, err = capsys.readouterr()
        assert out.count("\n") == 1, "one object, on one line"
        assert err == "", "no progress bar where nobody is looking"
        return json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    return call


def numbers(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in NOT_NUMBERS}


def test_a_run_prints_its_table_on_standard_output_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "cora", *QUICK]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for words in (
        "cora · sgc · replay · mf*, 1 node per class",
        "protocol clean · seeded split · per-task head · all edges · 2 seeds",
        "PM performance mean",
        "FM forgetting mean (over M-1)",
        "AA average accuracy",
        "after task 3",
        "Buffer   6 nodes",
    ):
        assert words in out
    assert "LEAKY" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_json_is_the_result_of_the_run(json_of) -> None:
    options = {"selector": "im", "per_class": 2, "denominator": "M", "seeds": 2, "epochs": 3}
    expected = run(RunConfig("cora", backbone="sgc", split="seeded", **options)).to_dict()
    result = json_of("cora", *QUICK, "--selector", "im", "--per-class", "2", "--denominator", "M")
    assert numbers(result) == numbers(json.loads(json.dumps(expected)))
    buffer = result["buffer"]
    assert buffer["nodes"] == 12 == len(set(buffer["ids"][0]))
    assert buffer["bytes"] == 12 * 2 * 8, "an id and a label, eight bytes each"
    assert (result["peak_memory_mb"] > 10, result["leaky"]) == (True, False)


def test_the_same_seed_gives_bitwise_the_same_numbers(json_of) -> None:
    options = ("cora", "--backbone", "gat", "--split", "seeded", "--seeds", "2", "--epochs", "4", "--selector", "im")
    first = json_of(*options)
    assert numbers(json_of(*options)) == numbers(first)
    assert first["runs"][0]["matrix"] != first["runs"][1]["matrix"], "another seed is another run"
    command = [sys.executable, "-W", "ignore", "-m", "ergnn", "run", *options, "--json"]
    environment = {**os.environ, "ERGNN_OFFLINE": "1"}
    fresh = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert numbers(json.loads(fresh.stdout)) == numbers(first)


def test_influence_on_test_nodes_is_marked_leaky_in_table_and_json(json_of, capsys: pytest.CaptureFixture[str]) -> None:
    leaky = ("cora", *QUICK, "--selector", "im", "--selector-options", "target=test")
    assert json_of(*leaky)["leaky"] is True
    assert main(["run", *leaky]) == 0
    assert capsys.readouterr().out.count("LEAKY (selector used test labels)") == 2, "in the heading and on the measures"


def test_a_config_file_sets_what_the_command_line_does_not(json_of, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(
        'dataset = "citeseer"\nbackbone = "sgc"\nsplit = "seeded"\nselector = "im"\nseeds = 3\nepochs = 2\n'
        'weight-decay = 0\nclass_order = "5,4,3,2,1,0"\n\n[selector_options]\ntarget = "train"\n'
    )
    result = json_of("--config", str(config), "--seeds", "1", "--per-class", "2")
    assert (result["dataset"], result["selector"], result["epochs"]) == ("citeseer", "im", 2)
    assert (result["seeds"], result["per_class"]) == ([0], 2), "what is typed wins"
    assert result["weight_decay"] == 0.0
    assert result["selector_options"] == {"target": "train"}
    assert result["runs"][0]["classes"] == [[5, 4], [3, 2], [1, 0]]
    typed = ("--selector", "im", "--weight-decay", "0", "--class-order", "5,4,3,2,1,0", "--per-class", "2")
    options = (*QUICK, "--seeds", "1", "--epochs", "2", "--selector-options", "target=train")
    assert numbers(json_of("citeseer", *typed, *options)) == numbers(result)


def test_datasets_are_listed_with_sizes_and_locations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets"]) == 0
    out = capsys.readouterr().out
    for name in DATASETS:
        assert re.search(rf"^ {re.escape(name)} ", out, re.MULTILINE)
    assert re.search(r"^ cora .*2,708 +1,433 +7 +5,278 +3 × 2 +yes +task, class, blurred +bundled", out, re.MULTILINE)
    assert re.search(r"^ reddit .*8 × 5 ", out, re.MULTILINE)
    assert re.search(r"^ pubmed-years .* time ", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("command", "registry"), [("methods", METHODS), ("backbones", BACKBONES), ("selectors", SELECTORS)]
)
def test_entries_are_listed_with_their_options(
    capsys: pytest.CaptureFixture[str], command: str, registry: Registry[Any]
) -> None:
    assert main([command]) == 0
    out = capsys.readouterr().out
    for name in registry:
        cells = (name, ", ".join(registry.aliases(name)), registry.help(name))
        assert re.search("^ " + " .*".join(map(re.escape, cells)), out, re.MULTILINE)
        assert main([command, name]) == 0
        listed = capsys.readouterr().out
        for option in registry.options(name):
            flag = option.name.replace("_", "[-_]")
            assert option.help, f"{name}: {option.name} has no help text"
            assert re.search(rf"^ (--)?{flag} .*{re.escape(option.help)}", listed, re.MULTILINE), option.name
    assert main([command, "nope"]) == 2
    assert "unknown" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["run", "cora"], "interrupted; with --checkpoint DIR, the same command resumes a run"),
        (["reproduce", "table2", "--out", "my runs"], "interrupted; the same command with --resume continues"),
        (["observe", "my folder"], "interrupted; `ergnn observe DIR --resume` continues"),
        (["datasets"], "interrupted"),
    ],
)
def test_an_interrupted_command_says_how_to_continue(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    for place in ("lab.run.run", "lab.reproduce.reproduce"):
        monkeypatch.setattr(f"ergnn.{place}", interrupt)
    monkeypatch.setattr("ergnn.config.registry.Registry.create", interrupt)
    monkeypatch.setattr("ergnn.cli.folder.LearnerFolder", interrupt)
    assert main(argv) == 130
    assert capsys.readouterr().err == f"ergnn: {message}\n"


def test_help_explains_every_option(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    settings = {*DEFAULTS, "config", "json", "threads", "quiet"} - {"dataset"}
    for method, words in (("replay", []), ("twp", ["--method", "twp"])):
        with pytest.raises(SystemExit) as stop:
            main(["run", "--help", *words])
        assert stop.value.code == 0
        text = capsys.readouterr().out.partition("positional arguments:")[2]
        for name in settings | {option.name for option in METHODS.options(method)}:
            flag = "--" + name.replace("_", "-")
            assert re.search(rf"^ +{flag}(?: \S+)?\s+\w[^\n]{{5,}}", text, re.MULTILINE), f"{flag} has no text"
        assert "DATASET" in text
        assert ("--per-class" in text) == (method == "replay"), "options of other methods are not listed"


def test_the_progress_bar_goes_to_a_terminals_standard_error_only() -> None:
    pty = pytest.importorskip("pty")
    terminal, stderr = pty.openpty()
    command = [sys.executable, "-W", "ignore", "-m", "ergnn", "run", "cora", *QUICK]
    environment = {**os.environ, "ERGNN_OFFLINE": "1", "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, env=environment, text=True)
    os.close(stderr)
    shown = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # Linux's way of saying that the other end is closed
            break
        if not part:
            break
        shown += part
    out = process.stdout.read()
    assert process.wait() == 0
    assert "cora · sgc · replay mf*" in shown.decode()
    assert "100%" in shown.decode()
    assert "PM performance mean" in out
    assert "\x1b" not in out
    assert "100%" not in out
