"""Importing the package, help and usage errors do not import torch; commands on a closed form import little else."""

import json
from pathlib import Path

import pytest

import ergnn
from ergnn.data.tables import read_edges, read_nodes
from ergnn.folder import LearnerFolder
from fresh import python

COMMANDS = [
    "--help",
    "--version",
    "walk",
    "",
    "run",
    "run cora --seeds many",
    "run cora --epochs 0",
    "run cora --head hydra",
    "run cora --protocol mine",
    "run --config no.toml",
    "init",
    "init folder --keep many",
    "observe folder --threads many",
    "predict --help",
    "reproduce table9",
]
HEAVY = """
import contextlib, io, json, sys
import ergnn

def heavy():
    return [name for name in ("torch", "torch_geometric", "scipy.stats", "rich", "numpy") if name in sys.modules]

ergnn.LearnerConfig(), ergnn.RunConfig()
imported = {"import ergnn": heavy()}
from ergnn.cli.main import main

for command in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main(command.split())
    imported[command] = heavy()
print(json.dumps(imported))
"""


def test_help_and_errors_of_usage_import_nothing_heavy() -> None:
    """Except for options of methods, whose constructors define them."""
    imported = json.loads(python("-c", HEAVY, stdin=json.dumps([*COMMANDS, "run cora --per-class many"])))
    assert "torch" in imported.pop("run cora --per-class many")
    assert imported == {key: [] for key in ["import ergnn", *COMMANDS]}


USED = """
import contextlib, io, json, sys
from ergnn.cli.main import main

with contextlib.redirect_stdout(io.StringIO()):
    codes = [main(command.split()) for command in json.load(sys.stdin)]
print(json.dumps([codes, sorted(sys.modules)]))
"""
UNUSED = ("torch_geometric", "torch._dynamo", "sympy", "pandas", "sklearn", "ergnn.methods.replay", "ergnn.lab.run")


def test_commands_on_a_closed_form_import_no_networks_and_no_compiler(tmp_path: Path) -> None:
    nodes, edges, ids = (tmp_path / name for name in ("nodes.csv", "edges.csv", "ids.csv"))
    rows = [f"n{i},{'ab'[i % 2]},{i % 2},{i % 3}" for i in range(40)]
    nodes.write_text("\n".join(["id,label,x,z", *rows]), encoding="utf-8")
    edges.write_text("source,target\n" + "\n".join(f"n{i},n{i + 2}" for i in range(38)), encoding="utf-8")
    ids.write_text("id\nn0\nn1\n", encoding="utf-8")
    folder = LearnerFolder.create(tmp_path / "learner")
    folder.observe(read_nodes(nodes), read_edges(edges))
    commands = ["inspect {0}", "evaluate {0}", "predict {0} --nodes {1}", "forget {0} --nodes {1}"]
    given = json.dumps([command.format(folder.root, ids) for command in commands])
    codes, imported = json.loads(python("-c", USED, stdin=given))
    assert codes == [0] * len(commands)
    assert "torch" in imported
    assert [name for name in UNUSED if name in imported] == []


def test_every_public_name_is_there() -> None:
    assert set(ergnn.__all__) <= set(dir(ergnn))
    for name in ergnn.__all__:
        assert getattr(ergnn, name) is not None
    assert ergnn.data.splits.per_class is not None, "modules are found, too"
    with pytest.raises(AttributeError, match="module 'ergnn' has no attribute 'color'"):
        _ = ergnn.color
