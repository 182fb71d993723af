"""A third-party package: one file per entry, found by entry point. Its files are the blocks of docs/extending.md."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fresh import commands, python

GUIDE = Path(__file__).parents[2] / "docs" / "extending.md"

DROPPED_IN = """
from torch import Tensor
from ergnn.replay.selectors import SELECTORS, SelectionContext, Selector

@SELECTORS.register("dropped-in", help="the first feature decides")
class DroppedIn(Selector):
    def score(self, context: SelectionContext) -> Tensor:
        return context.graph.rows(context.nodes)[:, 0]
"""

USE = """
import json, sys
import ergnn.replay.selectors
from ergnn.data import DATASETS, make_stream
from ergnn.learning.learner import Learner
from ergnn.methods import METHODS
from ergnn.nn.backbones import BACKBONES
from ergnn.replay import SELECTORS
from ergnn.testing import check_selector

ergnn.replay.selectors.__path__.append(sys.argv[1])
check_selector("dropped-in")
learner = Learner("graphconv", "replay", selector="hub", epochs=3)
for task in make_stream("rings", split="seeded").stream:
    learner.observe(task)
print(json.dumps({
    "selectors": SELECTORS.names(),
    "backbones": BACKBONES.names(),
    "methods": METHODS.names(),
    "datasets": DATASETS.names(),
    "help": SELECTORS.help("hub"),
    "remembered": len(learner.method.buffer),
}))
"""

RUN_BLOCKS = """
import json, sys
for number, block in enumerate(json.load(sys.stdin)):
    exec(compile(block, f"block {number}", "exec"), {"__name__": "__main__"})
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like one where ``acme-ergnn`` was installed."""
    site = tmp_path_factory.mktemp("site")
    (site / "acme_ergnn").mkdir()
    (site / "acme_ergnn" / "__init__.py").touch()
    for block in blocks("python"):
        registered = re.search(r'\.register\("([\w-]+)"', block)
        if registered:
            (site / "acme_ergnn" / f"{registered[1]}.py").write_text(block, encoding="utf-8")
    (pyproject,) = blocks("toml")
    groups = re.findall(r'\[project\.entry-points\."([\w.]+)"\]\n(\w+) = "([\w.]+)"', pyproject)
    info = site / "acme_ergnn-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-ergnn\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("".join(f"[{group}]\n{key} = {value}\n" for group, key, value in groups))
    return site


def test_files_and_entry_points_add_names(site: Path, tmp_path: Path) -> None:
    (tmp_path / "dropped_in.py").write_text(DROPPED_IN, encoding="utf-8")
    used: dict[str, Any] = json.loads(python("-c", USE, str(tmp_path), site=site))
    assert {"hub", "dropped-in", "random", "mf", "mf*", "cm", "cm*", "im"} < set(used["selectors"])
    for registry, name in (("backbones", "graphconv"), ("methods", "hoard"), ("datasets", "rings")):
        assert name in used[registry]
    assert used["remembered"] == 4
    assert used["help"] == "most neighbors, or fewest"


def test_the_command_line_lists_and_runs_a_third_party_selector(site: Path) -> None:
    command = "run rings --selector hub --backbone graphconv --split seeded --seeds 1 --epochs 2 --json --quiet"
    listed, ran = commands("selectors", command, site=site)
    assert re.search(r"^\W*hub\b.*most neighbors", listed.out, re.MULTILINE)
    assert ran.code == 0, ran.err
    result = json.loads(ran.out)
    assert (result["dataset"], result["backbone"], result["selector"]) == ("rings", "graphconv", "hub")
    assert result["buffer"]["nodes"] == 4


def test_every_block_of_the_guide_runs() -> None:
    python("-c", RUN_BLOCKS, stdin=json.dumps(blocks("python")))
