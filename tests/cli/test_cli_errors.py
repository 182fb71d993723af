"""Bad input on the command line: exit code 2 and one clear line, before any training."""

import re
from pathlib import Path

import pytest

from ergnn.cli.main import main


def assert_refused(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, nothing on standard output, one line on standard error."""
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ergnn: ")
    assert err.count("\n") == 1
    assert re.search(message, err), err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("imagenet", r"unknown dataset 'imagenet'; choose one of: .*cora, "),
        ("cora --selector best", r"unknown selector 'best'; choose one of: .*mf\*"),
        ("cora --split public", "ERGNN_DATA is not set"),
        ("cora --per-class 21", r"class 0 has 20 training node\(s\), fewer than per_class \(e\) = 21; scarce='keep'"),
        ("cora --seeds 0", "seeds is 0; it must be 1 or more"),
        ("cora --method ewc --selector mf", r"method 'ewc' has no option 'selector'; its options: .*lam"),
        ("cora --class-order 0,1,2", r"class_order is \[0, 1, 2\]; it must have each class, 0 to 6, once"),
        ("cora --device cuda:99", "device 'cuda:99' is unavailable"),
        ("cora --selector-options radius=1", r"selector 'mf\*' has no option 'radius'; its options: distance, "),
        ("cora --selector im --selector-options target=all", "unknown target 'all'; choose one of: test, "),
        ("cora --backbone-options width=3", "backbone 'gat' has no option 'width'; its options: dropout, heads"),
        ("", "no DATASET on the command line or in the config file; `ergnn datasets` lists them"),
    ],
)
def test_bad_input_is_rejected_in_one_line_before_any_training(
    argv: str, message: str, capsys: pytest.CaptureFixture[str], no_training: None
) -> None:
    assert_refused(["run", *argv.split()], message, capsys)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("run cora --seeds many", "argument --seeds: invalid int value: 'many'"),
        ("run cora --threads 0", "argument --threads: '0' is not a whole number of 1 or more"),
        ("run cora --selector-options target", "'target' is not KEY=VALUE"),
        ("run cora red", "unrecognized arguments: red"),
        ("", "the following arguments are required: COMMAND"),
    ],
)
def test_parse_errors_are_reported(argv: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(argv.split(), message, capsys)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("observ week", "unknown command 'observ' (did you mean 'observe'?); choose one of: "),
        ("run cora --metod replay", "unknown option --metod (did you mean '--method'?); `ergnn run --help` lists all"),
        ("run cora --method reply", "unknown method 'reply' (did you mean 'replay'?)"),
        ("run coar", "unknown dataset 'coar' (did you mean 'cora'?)"),
        ("init new --methd analytic", "unknown option --methd (did you mean '--method'?); `ergnn init --help`"),
        ("run cora --with-replacement maybe", "with_replacement is 'maybe'; it must be of type bool"),
        ("init new --directed maybe", "directed is 'maybe'; it must be of type bool"),
        ("reproduce table2 --seeds -1", "seeds is -1; it must be 1 or more"),
        ("init full", "full: already exists and is not an empty folder"),
        ("init learner", "it holds a learner: `ergnn observe learner …` updates it"),
        ("inspect lerner", "lerner: no such folder (did you mean 'learner'?)"),
        (
            "observe learner --nodes node.csv",
            "node.csv: cannot be read (No such file or directory (did you mean 'nodes.",
        ),
        (
            "observe learner --nodes nodes.csv --label-column Lable",
            "no column 'Lable' (did you mean 'label'?); columns are",
        ),
    ],
)
def test_what_was_mistyped_is_guessed(
    argv: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "nodes.csv").write_text("id,label,age\na,x,1\nb,y,2\n")
    assert main(["init", "learner"]) == 0
    assert main(argv.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('dataset = "cora"\nselectr = "mf"', r"run\.toml: unknown key 'selectr'; choose among: .*selector, "),
        ('dataset = "cora"\nmethod = "ewc"\nper_class = 2', "'ewc' has no option 'per_class'; its options: .*lam"),
        ('dataset = "cora"\nseeds = "ten"', r"run\.toml: seeds is 'ten'; it must be of type int"),
        ('dataset = "cora"\nlr = "fast"', r"run\.toml: lr is 'fast'; it must be of type float"),
        ('dataset = "cora"\nselector_options = "target=test"', "selector_options is .*; it must be of type"),
        ("dataset: cora", r"run\.toml: cannot be read as a TOML file \(.*line 1"),
    ],
)
def test_a_bad_config_file_is_named_with_what_is_wrong(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], no_training: None
) -> None:
    config = tmp_path / "run.toml"
    config.write_text(text)
    assert_refused(["run", "--config", str(config)], message, capsys)


def test_a_config_file_that_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(
        ["run", "--config", str(tmp_path / "no.toml")],
        r"no\.toml: cannot be read as .*No such file",
        capsys,
    )
    assert_refused(["run", "--config", str(tmp_path)], "cannot be read", capsys)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    assert_refused(["run", "--config", str(tmp_path / "bytes.toml")], r"bytes\.toml: cannot be read", capsys)


def test_a_file_instead_of_a_folder_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "my nodes.csv"
    file.touch()
    assert_refused(["evaluate", str(file)], "is a file", capsys)
    assert main(["evaluate", str(tmp_path / "no folder")]) == 2
    assert f"`ergnn init '{tmp_path / 'no folder'}'`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "analytic", "--epochs", "5"], "epochs is 5, which has no effect with method 'analytic'"),
        (["--method", "analytic", "--backbone", "gcn"], "backbone is 'gcn', which has no effect"),
        (["--method", "nearest-mean", "--lr", "0.1"], "lr is 0.1, which has no effect with method 'nearest-mean'"),
    ],
)
@pytest.mark.parametrize("command", ["run", "init"])
def test_settings_without_effect_are_refused(
    command: str, words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = "cora" if command == "run" else str(tmp_path / "folder")
    assert_refused([command, target, *words], f"{message}.*; leave it out", capsys)
    assert not (tmp_path / "folder").exists()


def test_settings_with_effect_are_not_refused(tmp_path: Path) -> None:
    analytic = ["--method", "analytic", "--head", "growing", "--seeds", "1", "--split", "seeded", "--quiet"]
    assert main(["run", "cora", *analytic, "--backbone", "auto", "--memory", "statistics", "--per-class", "2"]) == 0
    assert main(["run", "cora", *analytic, "--student", "true", "--epochs", "1", "--backbone", "sgc"]) == 0
    assert main(["init", str(tmp_path / "folder"), "--method", "replay", "--epochs", "5", "--per-class", "2"]) == 0
