"""A third-party convolution, in one file with one form, is supported everywhere that a built-in one is."""

import runpy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ergnn.data import Graph
from ergnn.engine import adjacency, outputs
from ergnn.engine.objective import FieldObjective, make_objective
from ergnn.engine.sampling import Sampling
from ergnn.folder import LearnerFolder
from ergnn.folder.settings import Settings
from ergnn.nn import layers
from ergnn.nn.backbones import BACKBONES
from ergnn.testing import check_backbone
from folder.growing import edges_of, nodes_of, probabilities, x_of
from nn.cases import assert_near, examples_of, messy_graphs, model_of, reference_logits

NAME, WIDTHS = "discounted-mean", [3, 2]


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    """Import the file, as an entry point would, and remove what it registered afterwards."""
    BACKBONES.names()
    with pytest.MonkeyPatch.context() as patch:
        for part in ("_entries", "_aliases", "_help"):
            patch.setattr(BACKBONES, part, dict(getattr(BACKBONES, part)))
        patch.setattr(layers, "FORMS", dict(layers.FORMS))
        runpy.run_path(str(Path(__file__).parent / "discounted_mean.py"))
        yield


@pytest.fixture(params=["small", "large"])
def _size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "large":
        monkeypatch.setattr(adjacency, "LINKED_FROM", 0)
        monkeypatch.setattr(outputs, "FIELD_EDGES", -1)


@pytest.mark.usefixtures("_size")
def test_its_scores_on_fields_equal_dense_matrices() -> None:
    @settings(max_examples=25)
    @given(messy_graphs(), st.data())
    def check(graph: Graph, data: st.DataObject) -> None:
        examples = data.draw(examples_of(graph, WIDTHS, 2))
        model = model_of(NAME, graph.num_features, WIDTHS)
        assert model.runs_on_fields
        objective = FieldObjective([model], [examples])
        expected = reference_logits(model, examples)
        assert_near(objective.logits(objective.parameters()), expected)
        assert_near(outputs.logits_of(model, graph, examples.nodes, examples.heads), expected)
        sampled = make_objective([model], [examples], sampling=Sampling((10_000,) * model.num_hops))
        assert_near(sampled.logits(sampled.parameters()), expected)

    check()


def test_it_passes_the_contract_suite() -> None:
    check_backbone(NAME, hidden=4)


def test_it_learns_in_a_folder(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "d", Settings.from_settings({"backbone": NAME, "epochs": 2}))
    ids = [f"n{i}" for i in range(12)]
    folder.observe(nodes_of(ids, ["x", "y"] * 6, x_of(12)), edges_of(("n0", "n1"), ("n1", "n2")))
    np.testing.assert_allclose(probabilities(folder, ids).sum(1), 1, rtol=1e-6)
