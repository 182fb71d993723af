"""Importing the package, help and usage errors do not import torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ergnn

HEAVY = "[name for name in ('torch', 'torch_geometric', 'scipy.stats', 'rich', 'numpy') if name in sys.modules]"


def imported_by(code: str) -> str:
    """The heavy modules that some code imports, as a fresh interpreter prints them."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint({HEAVY})"], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1]


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert imported_by("import ergnn; ergnn.LearnerConfig(); ergnn.RunConfig()") == "[]"


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["init", "--help"],
        ["walk"],
        [],
        ["run", "cora", "--color", "red"],
        ["run", "cora", "--seeds", "many"],
        ["run", "cora", "--per-class", "many"],
        ["run", "cora", "--epochs", "0"],
        ["run", "cora", "--head", "hydra"],
        ["run", "cora", "--protocol", "mine"],
        ["run", "--config", "no.toml"],
        ["run"],
        ["init"],
        ["init", "folder", "--color", "red"],
        ["observe", "folder", "--threads", "many"],
        ["reproduce", "table9"],
    ],
    ids=" ".join,
)
def test_help_and_errors_of_usage_import_nothing_heavy(argv: list[str]) -> None:
    code = f"from ergnn.cli.main import main\ntry:\n    main({argv!r})\nexcept SystemExit:\n    pass"
    assert imported_by(code) == "[]"


def test_every_public_name_is_there() -> None:
    assert set(ergnn.__all__) <= set(dir(ergnn))
    for name in ergnn.__all__:
        assert getattr(ergnn, name) is not None
    assert ergnn.data.splits.per_class is not None, "modules are found, too"
    with pytest.raises(AttributeError, match="module 'ergnn' has no attribute 'color'"):
        _ = ergnn.color
