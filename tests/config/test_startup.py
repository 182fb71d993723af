"""Importing the package, help and usage errors do not import torch."""

from __future__ import annotations

import json

import pytest

import ergnn
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


def test_every_public_name_is_there() -> None:
    assert set(ergnn.__all__) <= set(dir(ergnn))
    for name in ergnn.__all__:
        assert getattr(ergnn, name) is not None
    assert ergnn.data.splits.per_class is not None, "modules are found, too"
    with pytest.raises(AttributeError, match="module 'ergnn' has no attribute 'color'"):
        _ = ergnn.color
