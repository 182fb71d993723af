"""The closed form in a folder: whatever came, was corrected or left, it is what the final graph gives at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch

from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.errors import InputError
from ergnn.folder import LearnerFolder, Settings
from ergnn.learner import Learner
from folder.growing import edges_of, nodes_of, probabilities, x_of

CLASSES = ("red", "green", "blue", "gray")
SPARSE = 0.02
"""Edges per pair of nodes: some nodes have none, and neighborhoods are small."""


@dataclass
class Whole:
    """The graph and labels that a folder must hold, in plain dictionaries."""

    directed: bool = False
    x: dict[str, np.ndarray] = field(default_factory=dict)
    label: dict[str, str] = field(default_factory=dict)
    split: dict[str, str] = field(default_factory=dict)
    edges: set[tuple[str, str]] = field(default_factory=set)

    def link(self, pairs: list[tuple[str, str]]) -> None:
        for a, b in pairs:
            self.edges |= {(a, b)} if self.directed else {(a, b), (b, a)}

    def remove(self, ids: list[str]) -> None:
        for name in ids:
            for part in (self.x, self.label, self.split):
                part.pop(name, None)
        self.edges = {(a, b) for a, b in self.edges if a not in ids and b not in ids}

    def expected(self, settings: Settings) -> tuple[list[str], np.ndarray]:
        """Class names and probabilities of all nodes, from a learner that learns everything at once."""
        place = {name: i for i, name in enumerate(self.x)}
        trained = [name for name in self.label if self.split[name] == "train"]
        names = sorted({self.label[name] for name in trained})
        y = torch.full((len(place),), -1)
        for name in trained:
            y[place[name]] = names.index(self.label[name])
        pairs = [[place[a], place[b]] for a, b in sorted(self.edges)]
        edges = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T.contiguous()
        graph = Graph(torch.from_numpy(np.stack(list(self.x.values()))), edges, y)
        learner, none = Learner(settings.config), torch.empty(0, dtype=torch.long)
        train = (y >= 0).nonzero().flatten()
        learner.observe(Task(0, graph, train, none, none, tuple(range(len(names)))))
        return names, learner.predict_proba(torch.arange(len(place)), graph=graph).numpy()


def check(folder: LearnerFolder, whole: Whole) -> None:
    """The folder's predictions are those of learning at once; whether many or few are asked for."""
    names, expected = whole.expected(folder.settings)
    ids = list(whole.x)
    for wanted in (ids, ids[:2]):
        parts = list(folder.predict(wanted, chunk=7))
        found = np.concatenate([part[2] for part in parts])
        columns = [parts[0][1].index(name) for name in names]
        assert len(names) == len(parts[0][1])
        np.testing.assert_allclose(found[:, columns], expected[: len(wanted)], atol=1e-8, rtol=0)


def observe(folder: LearnerFolder, whole: Whole, rng: np.random.Generator, count: int) -> None:
    """New nodes with edges to any nodes, some of them labeled, and late edges and labels of known ones."""
    ids = [f"v{folder.inspect()['graph']['nodes'] + folder.inspect()['graph']['forgotten'] + i}" for i in range(count)]
    x = x_of(count, int(rng.integers(10**6)))
    known = list(whole.x)
    labels = [str(rng.choice(CLASSES)) if rng.random() < 0.6 else None for _ in ids]
    splits = [str(rng.choice(["train", "train", "test"])) if label else None for label in labels]
    table = nodes_of(ids, labels, x, split=np.array(splits, object))
    everyone = known + ids
    total = int(SPARSE * len(everyone) ** 2) + 1
    pairs = [(everyone[a], everyone[b]) for a, b in rng.integers(0, len(everyone), (total, 2))]
    folder.observe(table, edges_of(*pairs))
    for name, row, label, split in zip(ids, x, labels, splits, strict=True):
        whole.x[name] = row
        if label:
            whole.label[name], whole.split[name] = label, str(split)
    whole.link(pairs)
    late = [name for name in known if name not in whole.label][:2]
    if late:
        given = [str(rng.choice(CLASSES)) for _ in late]
        folder.observe(nodes_of(late, given, split=np.array(["train"] * len(late), object)))
        whole.label |= dict(zip(late, given, strict=True))
        whole.split |= dict.fromkeys(late, "train")


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("options", [{}, {"feature_map": "hops"}, {"feature_map": "ppr", "sketch": 5, "lam": 0.1}])
def test_predictions_after_each_change_equal_learning_at_once(
    directed: bool, options: dict[str, object], tmp_path: Path
) -> None:
    folder = LearnerFolder.create(tmp_path / "d", Settings.from_settings({"directed": directed, **options}))
    whole, rng = Whole(directed), np.random.default_rng(3)
    for step in range(6):
        observe(folder, whole, rng, 8)
        check(folder, whole)
        if step % 2:
            gone = [str(name) for name in rng.choice(list(whole.x), 3, replace=False)]
            report = folder.forget(gone)
            whole.remove(gone)
            assert report["exact"]
            assert not report["parameters_depend"]
            check(folder, whole)
    edge = [tuple(rng.choice(list(whole.x), 2, replace=False)) for _ in range(3)]
    before = probabilities(folder, list(whole.x))
    folder.observe(edges=edges_of(*edge), name="late edges alone")
    whole.link(edge)
    check(folder, whole)
    folder.rollback()
    np.testing.assert_array_equal(probabilities(folder, list(whole.x)), before)
    folder.observe(edges=edges_of(*edge))  # from a version that is not the newest
    check(folder, whole)
    assert not folder.check()


def test_inspect_lists_all_training_nodes(tmp_path: Path) -> None:
    folder = LearnerFolder.create(tmp_path / "d")
    whole, rng = Whole(), np.random.default_rng(0)
    for _ in range(2):
        observe(folder, whole, rng, 10)
    found = folder.inspect()
    trained = {name: label for name, label in whole.label.items() if whole.split[name] == "train"}
    assert {row["id"]: row["class"] for row in found["buffer"]} == trained
    assert all(row["score"] is None and row["rank"] is None for row in found["buffer"])
    assert found["updates"][-1]["remembered"] == len(trained)
    assert found["bytes"]["weights"] > 0


@pytest.mark.parametrize("options", [{"memory": "centroids"}, {"student": True}])
def test_options_that_do_not_fit_a_folder_are_refused(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        LearnerFolder.create(tmp_path / "d", Settings.from_settings(options))
    assert not (tmp_path / "d").exists()
