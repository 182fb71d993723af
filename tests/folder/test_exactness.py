"""A folder reads a part of its graph; what it learns and says must be what the whole graph in memory gives."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.data.tables import EdgeTable, NodeTable
from ergnn.folder import LearnerFolder, Settings
from ergnn.learning.learner import Learner
from ergnn.methods import METHODS
from folder.growing import QUICK, make_updates, probabilities, quick


def whole_graph(updates: list[tuple[NodeTable, EdgeTable]], dense: bool) -> Graph:
    """The graph of some updates in memory, with plain dictionaries and sets; classes are numbered as in a folder."""
    place = {name: i for i, name in enumerate(name for nodes, _ in updates for name in nodes.ids)}
    labels = [label for nodes, _ in updates for label in nodes.labels]
    classes = list(dict.fromkeys(name for nodes, _ in updates for name in sorted({*nodes.labels} - {None})))
    ends = {(place[a], place[b]) for _, edges in updates for a, b in zip(edges.source, edges.target, strict=True)}
    pairs = sorted(ends | {(b, a) for a, b in ends}, key=lambda pair: pair[::-1])
    x = torch.from_numpy(np.concatenate([nodes.features for nodes, _ in updates]))
    y = torch.tensor([-1 if label is None else classes.index(label) for label in labels])
    return Graph(x if dense else x.to_sparse_csr(), torch.tensor(pairs).T.contiguous(), y)


SETTINGS = [
    QUICK,
    quick(backbone="gat", backbone_options={"hidden": 2, "heads": 2}, budget_nodes=11),
    quick(backbone="sage", backbone_options={"hidden": 4}, selector="mf-s2", batch_size=8),
    quick(backbone="sgc", backbone_options={}, selector="random", replay_batch=4),
    quick(backbone="gin", backbone_options={"hidden": 4}, selector="rim", selector_options={"target": "train"}),
    quick(backbone="mlp", backbone_options={"hidden": 4}, selector="cm*"),
]


FITTING = ("finetune", "er-ace", "logit-adjusted", "gem", "agem", "continualgnn", "lwf", "ewc", "online-ewc", "mas")
FITTING += ("si", "twp")
SMALL = {"backbone": "gcn", "backbone_options": {"hidden": 4}, "epochs": 4, "seed": 1, "eval_samples": 200}
SETTINGS += [Settings.from_settings({**SMALL, "method": method}) for method in FITTING]


@pytest.mark.parametrize("method", sorted({*METHODS} - {*FITTING, "analytic", "replay"}))
def test_methods_that_need_more_than_a_folder_stores_are_refused(tmp_path: Path, method: str) -> None:
    settings = Settings.from_settings({"method": method})
    with pytest.raises(InputError, match=f"method '{method}' does not (work in a folder: it|support head 'growing')"):
        LearnerFolder.create(tmp_path / "learner", settings)
    assert not (tmp_path / "learner").exists()


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s.learner.method} {s.learner.backbone}")
def test_learns_the_same_bits_as_with_the_whole_graph_in_memory(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = LearnerFolder.create(tmp_path / "learner", settings)
    learner, updates = Learner(settings.config), make_updates(3, nodes=150, labeled=0.15, links=1)
    for number, update in enumerate(updates):
        record = folder.observe(*update)
        snapshot = folder.snapshot()
        graph = whole_graph(updates[: number + 1], snapshot.graph.dense)
        train, val = (torch.from_numpy(snapshot.members(number, split)[0]) for split in ("train", "val"))
        classes = tuple(torch.unique(graph.y[train]).tolist())
        learner.observe(Task(number, graph, train, val, torch.empty(0, dtype=torch.long), classes))
        stored = snapshot.learner.learner.state_dict()
        for name, value in learner.state_dict()["model"].items():
            assert torch.equal(stored["model"][name], value), name
        if learner.method.buffer is not None:
            assert torch.equal(snapshot.learner.buffer.nodes, learner.method.buffer.nodes)
        everybody = torch.arange(graph.num_nodes)
        expected = learner.predict_proba(everybody, graph=graph).numpy()
        columns, ids = learner.classes().numpy(), [f"n{i}" for i in range(graph.num_nodes)]
        for chunk in (7, 1000):
            monkeypatch.setattr("ergnn.folder.network.CHUNK", chunk)
            np.testing.assert_allclose(probabilities(folder, ids)[:, columns], expected, rtol=2e-5, atol=1e-7)
    assert record["touched"] < 350  # of 450 nodes: a part, as was promised
