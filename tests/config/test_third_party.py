"""A third-party package: one file per entry, found by entry point. Its files are the blocks of docs/extending.md."""

from __future__ import annotations

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
from ergnn.testing import check_selector, checks

ergnn.replay.selectors.__path__.append(sys.argv[1])
check_selector("hub")
check_selector("dropped-in")
for check in checks("backbone"):
    check("graphconv")
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


@pytest.fixture(scope="module")
def used(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("selectors")
    (folder / "dropped_in.py").write_text(DROPPED_IN, encoding="utf-8")
    return json.loads(python("-c", USE, str(folder), site=site))


@pytest.mark.parametrize(
    ("registry", "name"),
    [("selectors", "hub"), ("backbones", "graphconv"), ("methods", "hoard"), ("datasets", "rings")],
)
def test_one_file_and_an_entry_point_add_a_name(used: dict[str, Any], registry: str, name: str) -> None:
    assert name in used[registry]


def test_the_built_in_names_are_still_there(used: dict[str, Any]) -> None:
    assert {"random", "mf", "mf*", "cm", "cm*", "im"} < set(used["selectors"])


def test_one_file_in_the_selectors_folder_adds_a_selector(used: dict[str, Any]) -> None:
    assert "dropped-in" in used["selectors"]


def test_a_learner_runs_with_third_party_selector_backbone_and_data_set(used: dict[str, Any]) -> None:
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
