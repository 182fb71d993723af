"""A folder reads a part of its graph; what it learns and says must be what the whole graph in memory gives."""

from pathlib import Path

import numpy as np
import pytest
import torch

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.folder import LearnerFolder, Settings
from ergnn.learning.learner import Learner
from ergnn.methods import METHODS
from folder.growing import QUICK, make_updates, probabilities, quick


class WholeGraph:
    """The same graph, kept in memory with plain dictionaries and sets."""

    def __init__(self, dense: bool) -> None:
        self.place: dict[str, int] = {}
        self.x: list[np.ndarray] = []
        self.label: dict[int, str] = {}
        self.edges: set[tuple[int, int]] = set()
        self.classes: list[str] = []
        self.dense = dense

    def add(self, nodes, edges) -> None:
        for name, label, x in zip(nodes.ids, nodes.labels, nodes.features, strict=True):
            self.place[name] = len(self.place)
            self.x.append(x)
            if label is not None:
                self.label[self.place[name]] = label
        self.classes += sorted({label for label in nodes.labels if label} - set(self.classes))
        for a, b in zip(edges.source, edges.target, strict=True):
            self.edges |= {(self.place[a], self.place[b]), (self.place[b], self.place[a])}

    def graph(self) -> Graph:
        x = torch.tensor(np.array(self.x))
        y = torch.tensor([self.classes.index(self.label[i]) if i in self.label else -1 for i in range(len(self.x))])
        edges = torch.tensor(sorted(self.edges, key=lambda edge: edge[::-1])).T.contiguous()
        return Graph(x if self.dense else x.to_sparse_csr(), edges, y)


SETTINGS = [
    QUICK,
    quick(backbone="gat", backbone_options={"hidden": 2, "heads": 2}, budget_nodes=11),
    quick(backbone="sage", backbone_options={"hidden": 4}, selector="mf-s2", batch_size=8),
    quick(backbone="sgc", backbone_options={}, selector="random", replay_batch=4),
    quick(backbone="gin", backbone_options={"hidden": 4}, selector="rim", selector_options={"target": "train"}),
    quick(backbone="mlp", backbone_options={"hidden": 4}, selector="cm*"),
]


FITTING = (
    *("finetune", "er-ace", "logit-adjusted", "gem", "agem", "continualgnn", "lwf", "ewc", "online-ewc", "mas", "si"),
    "twp",
)
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
    learner, whole = Learner(settings.config), None
    for number, (nodes, edges) in enumerate(make_updates(3, nodes=150, labeled=0.15, links=1)):
        record = folder.observe(nodes, edges)
        snapshot = folder.snapshot()
        whole = WholeGraph(snapshot.graph.dense) if whole is None else whole
        whole.add(nodes, edges)
        graph = whole.graph()
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
        columns = learner.classes().numpy()
        ids = list(whole.place)
        for chunk in (7, 1000):
            monkeypatch.setattr("ergnn.folder.network.CHUNK", chunk)
            np.testing.assert_allclose(probabilities(folder, ids)[:, columns], expected, rtol=2e-5, atol=1e-7)
    assert record["touched"] < 350  # of 450 nodes: a part, as was promised
