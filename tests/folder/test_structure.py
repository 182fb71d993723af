"""Nodes without columns: their features follow from the edges, whatever the order of updates."""

from pathlib import Path

import numpy as np
import pytest
import torch

import ergnn
from ergnn.config.errors import FormatError
from ergnn.data.structure import structural_features
from ergnn.data.tables import EdgeTable, NodeTable
from ergnn.folder import LearnerFolder, Settings

COUNT = 60
IDS = np.array([f"p{i}" for i in range(COUNT)], object)
LABELS = np.array(["ab"[i % 2] for i in range(COUNT)], object)
SPLIT = np.array(["test" if i % 5 == 0 else "train" for i in range(COUNT)], object)
RING = [(i, (i + 2) % COUNT) for i in range(COUNT)] + [(i, (i + 4) % COUNT) for i in range(0, COUNT, 3)]


def nodes(rows: np.ndarray) -> NodeTable:
    return NodeTable(IDS[rows], LABELS[rows], split=SPLIT[rows])


def edges(pairs: list[tuple[int, int]]) -> EdgeTable:
    return EdgeTable([IDS[a] for a, _ in pairs], [IDS[b] for _, b in pairs])


def predict(folder: LearnerFolder) -> np.ndarray:
    return np.concatenate([chunk for _, _, chunk in folder.predict(list(IDS))])


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> LearnerFolder:
    folder = LearnerFolder.create(tmp_path_factory.mktemp("folders") / "once", Settings())
    record = folder.observe(nodes(np.arange(COUNT)), edges(RING))
    assert record["columns"][0][:3] == ["(none)", "structure", "no columns"]
    return folder


@pytest.mark.parametrize("seed", range(3))
def test_order_corrections_late_edges_and_deletion_are_exact(at_once: LearnerFolder, tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    chunks = np.array_split(rng.permutation(COUNT), 3)
    folder = LearnerFolder.create(tmp_path / "steps", Settings())
    wrong = LABELS[chunks[0]].copy()
    wrong[SPLIT[chunks[0]] == "train"] = "b"
    gone = EdgeTable(["z", "z", "y", *IDS[chunks[0][:9]]], ["y", IDS[chunks[0][0]], IDS[chunks[0][1]], *["z"] * 9])
    first = NodeTable(["z", "y", *IDS[chunks[0]]], ["a", "b", *wrong], split=["train", "train", *SPLIT[chunks[0]]])
    folder.observe(first, gone)
    present = set(chunks[0].tolist())
    late = [RING[i] for i in rng.choice(len(RING), 25, replace=False)]
    for chunk in chunks[1:]:
        present |= set(chunk.tolist())
        inside = [pair for pair in RING if set(pair) <= present and set(pair) & set(chunk.tolist())]
        folder.observe(nodes(chunk), edges([pair for pair in inside if pair not in late]))
    folder.observe(nodes(chunks[0]), None)  # corrected labels
    folder.observe(None, edges([pair for pair in RING if pair in late or set(pair) <= set(chunks[0].tolist())]))
    folder.forget(["z", "y"])
    assert np.abs(predict(folder) - predict(at_once)).max() < 1e-8
    folder.purge()
    assert np.abs(predict(folder) - predict(at_once)).max() < 1e-8


def test_new_nodes_need_only_edges_and_columns_are_refused(at_once: LearnerFolder) -> None:
    new = NodeTable(["new"])
    links = EdgeTable(["new", "new"], ["p0", "p2"])
    (_, names, values), *_ = at_once.predict(nodes=new, edges=links)
    assert dict(zip(names, values[0], strict=True))["a"] > 0.5
    with pytest.raises(FormatError, match="earlier nodes had none"):
        at_once.observe(NodeTable(["q"], ["a"], features=np.ones((1, 2))))


def test_an_exported_model_computes_the_features(at_once: LearnerFolder, tmp_path: Path) -> None:
    import pandas as pd

    at_once.export(tmp_path / "model.safetensors")
    module = ergnn.load(tmp_path / "model.safetensors")
    ends = pd.DataFrame([(IDS[a], IDS[b]) for a, b in RING], columns=["source", "target"])
    both = torch.tensor(RING + [(b, a) for a, b in RING]).T
    with torch.no_grad():
        out = torch.softmax(module(module.encode(pd.DataFrame({"id": IDS}), ends), both), 1)
    assert np.abs(out.numpy() - predict(at_once)).max() < 1e-5


def test_features_do_not_depend_on_the_numbers_of_nodes() -> None:
    order = np.random.default_rng(0).permutation(COUNT)
    pairs = np.array(RING + [(b, a) for a, b in RING] + [(3, 3)] + RING[:5]).T
    number = np.argsort(order)
    moved = structural_features(list(IDS[order]), number[pairs])
    assert (moved != structural_features(list(IDS), pairs)[order]).nnz == 0


def test_walks_return_with_the_probabilities_of_the_transition_matrix() -> None:
    pairs = np.array(RING + [(b, a) for a, b in RING]).T
    adjacency = np.zeros((COUNT, COUNT))
    adjacency[pairs[1], pairs[0]] = 1
    walk = adjacency / adjacency.sum(1, keepdims=True)
    columns = structural_features(list(IDS), pairs)[:, -4:].toarray()
    expected = [np.diag(np.linalg.matrix_power(walk, steps)) for steps in (2, 3)]
    np.testing.assert_allclose(columns[:, :2] ** 2, np.stack(expected, 1), atol=1e-5)
