"""Options read from source are those of the imported classes, and reading them imports nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ergnn.config.registry import REQUIRED
from ergnn.config.signatures import method_options
from ergnn.methods import METHODS

THEIRS = '''
from typing import Literal
import torch
from ergnn.methods import METHODS
from ergnn.methods.replay import Replay
from ergnn.methods.finetune import Finetune

Mood = Literal["calm", "bold"]

@METHODS.register("theirs", aliases=("t",), help="a method of another package")
class Theirs(Finetune):
    """Their method.

    Args:
        alpha: weight of the distillation loss.
        mood: how bold it is.
    """

    def __init__(self, alpha: float, *, mood: Mood = "calm") -> None: ...

@METHODS.register("replay-more")
class More(Replay):
    """Replay under another name."""
'''


def test_methods_of_the_package_read_as_they_import() -> None:
    read = method_options()
    assert set(read) == {name for name in METHODS if METHODS.get(name).__module__.startswith("ergnn.")}
    for name, options in read.items():
        imported = METHODS.options(name)
        assert [(o.name, o.default, o.help, o.choices) for o in options] == [
            (o.name, o.default, o.help, o.choices) for o in imported
        ]
        assert [set(o.kinds) for o in options] == [set(o.kinds) for o in imported]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder that looks like one where a package with two methods was installed."""
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "acme" / "theirs.py").write_text(THEIRS)
    info = tmp_path / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ergnn.methods]\ntheirs = acme.theirs\n")
    return tmp_path


def test_methods_of_other_packages_are_read_too(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(site))
    method_options.cache_clear()
    try:
        alpha, mood = method_options()["theirs"]
        assert (alpha.name, alpha.default, alpha.kinds) == ("alpha", REQUIRED, (float,))
        assert alpha.help == "weight of the distillation loss."
        assert (mood.name, mood.default, mood.choices) == ("mood", "calm", ("calm", "bold"))
        assert method_options()["replay-more"] == method_options()["replay"], "a base class's constructor"
    finally:
        method_options.cache_clear()


def test_nothing_is_imported(site: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "from ergnn.config.signatures import method_options\n"
        "assert 'theirs' in method_options()\n"
        "sys.exit('torch' in sys.modules or 'ergnn.methods' in sys.modules or 'acme' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
