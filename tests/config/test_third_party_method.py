"""A third-party method in one file, with its own loss and options: listed, documented, run and stored."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fresh import commands, python

METHOD = '''
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from ergnn.data import Task
from ergnn.methods import METHODS, LearnerView, Method
from ergnn.nn.examples import Examples, cross_entropy

Divergence = Literal["squared", "absolute"]


@METHODS.register("keep-outputs", help="outputs of the shared head stay near those before the task")
class KeepOutputs(Method):
    """Distillation on the outputs.

    Args:
        strength: weight of the distance between new and old outputs.
        divergence: how the distance is measured.
    """

    def __init__(self, strength: float = 0.5, divergence: Divergence = "squared") -> None:
        self.strength, self.divergence = strength, divergence

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        own = learner.examples(task.graph, task.train, task.id).weighted(1.0 / task.train.numel())
        if task.id == 0 or len(learner.heads.heads_of(task.id, 1, learner.device)[0]) > 1:
            return own
        return replace(own, extras={"before": learner.logits(task.graph, task.train, task.id)})

    def loss(self, logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
        labels = cross_entropy(logits, targets, extras)
        if "before" not in extras:
            return labels
        distance = logits[:, : extras["before"].size(1)] - extras["before"]
        moved = distance.square() if self.divergence == "squared" else distance.abs()
        return labels + self.strength * moved.sum(1)
'''

STORE = """
import json, sys
from ergnn.lab.config import RunConfig
from ergnn.lab.run import run_members
from ergnn.lab.store import RunStore
from ergnn.testing import check_method

check_method("keep-outputs")
keys = set()
with RunStore(sys.argv[1]) as store:
    for strength in (0.5, 7.0):
        config = RunConfig("cora", backbone="sgc", head="shared", split="seeded", seeds=1, epochs=2,
                           method="keep-outputs", strength=strength).resolved()
        for results in run_members(config):
            store.put_all(config, results)
    print(json.dumps([run.config.get("strength") for run in store.runs(method="keep-outputs")]))
    print(json.dumps([run.seed for run in store.runs(method="keep-outputs") if run.config.get("strength") == 7.0]))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like one where a package with the method was installed."""
    site = tmp_path_factory.mktemp("site")
    (site / "keep_outputs.py").write_text(METHOD)
    info = site / "keep_outputs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: keep-outputs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ergnn.methods]\nkeep-outputs = keep_outputs\n")
    return site


RUN = "run cora --method keep-outputs --backbone sgc --head shared --split seeded --seeds 1 --epochs 20 --json --quiet"
WRONG = {
    "--method replay --strength 2": "method 'replay' has no option 'strength'; its options: ",
    "--method keep-outputs --per-class 7": "'keep-outputs' has no option 'per_class'; its options: div",
    "--method keep-outputs --divergence cubed": "unknown divergence 'cubed'; choose one of: absolute, squared",
    "--method keep-outputs --strength much": "argument --strength: invalid float value: 'much'",
}


def test_the_command_line_lists_documents_and_takes_its_options(site: Path) -> None:
    methods, listed, text, weak, strong, *refused = commands(
        "methods",
        "methods keep-outputs",
        "run --help --method keep-outputs",
        *(f"{RUN} --strength {strength}" for strength in (0, 1000)),
        *(f"run cora {options}" for options in WRONG),
        site=site,
    )
    assert re.search(r"^ keep-outputs .*outputs of the shared head", methods.out, re.MULTILINE)
    assert re.search(r"^ --strength +│ float +0\.5 +weight of the distance", listed.out, re.MULTILINE)
    assert re.search(r"--strength X +weight of the distance .*\(default: 0\.5\)", text.out)
    assert re.search(r"--divergence squared\|absolute\s+how the distance is measured \(default: squared", text.out)
    results = [json.loads(run.out) for run in (weak, strong)]
    assert results[0]["method_options"] == {"strength": 0.0, "divergence": "squared"}
    assert results[1]["method_options"]["strength"] == 1000.0
    moved = [abs(result["matrix"][2][0] - result["matrix"][0][0]) for result in results]
    assert moved[1] < moved[0], "what is held in place forgets less"
    for done, message in zip(refused, WRONG.values(), strict=True):
        assert done.code == 2
        assert message in done.err


def test_it_satisfies_the_contract_and_the_store_records_its_options(site: Path, tmp_path: Path) -> None:
    strengths, found = python("-c", STORE, str(tmp_path / "runs.sqlite"), site=site).splitlines()
    assert json.loads(strengths) == [7.0, None], "a default is left out of the key"
    assert json.loads(found) == [0]
