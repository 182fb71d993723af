"""Memory-mapped files, blocks of rows and columns, and memory use."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from analytic.dense import dense_phi, dense_s, dense_x
from ergnn.analytic import FEATURE_MAPS, Features, Inputs, NormalizedAdjacency
from ergnn.analytic import inputs as inputs_module
from ergnn.analytic.features import BLOCK_BYTES, MATRICES
from ergnn.data import Graph, Split, TaskStream
from ergnn.data.csr import mapped, row_chunks
from ergnn.engine import kernels
from ergnn.engine import propagation as propagation_module
from ergnn.engine.adjacency import adjacency_of
from ergnn.learning.learner import Learner
from graphs import random_graph

MAPS = ("ppr", "hops")


@pytest.fixture
def by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs are propagated as large ones are: without a stored matrix, a few rows at a time."""
    monkeypatch.setattr(propagation_module, "MATRIX_EDGES", 0)
    monkeypatch.setattr(kernels, "CHUNK_EDGES", 16)


def on_disk(graph: Graph, folder: Path) -> Graph:
    """The same graph in files that are mapped, with 32-bit neighbors."""
    adj = adjacency_of(graph)
    parts = {"x": graph.x, "rowptr": adj.rowptr, "col": adj.col.int(), "y": graph.y}
    for name, part in parts.items():
        np.save(folder / f"{name}.npy", part.numpy())
    x, rowptr, col, y = (mapped(folder / f"{name}.npy") for name in parts)
    return Graph.from_csr(x, rowptr, col, y, name=graph.name, public_split=graph.public_split)


def make(graph: Graph, name: str, keeps: bool = True) -> Features:
    return Features(FEATURE_MAPS.create(name), NormalizedAdjacency(graph), Inputs(graph), keeps)


@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_a_mapped_graph_in_row_chunks_equals_dense_matrices(
    name: str, self_loops: bool, by_kernels: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph(n=60, f=9, directed=True, self_loops=self_loops, isolated=3)
    expected = dense_phi(name, dense_s(graph), dense_x(graph))
    nodes, weight = torch.arange(60), torch.randn(len(expected[0]), 4, dtype=torch.float64)
    for keeps, block_bytes in ((True, BLOCK_BYTES["cpu"]), (False, BLOCK_BYTES["cpu"]), (False, 1)):
        monkeypatch.setitem(BLOCK_BYTES, "cpu", block_bytes)
        features = make(on_disk(graph, tmp_path), name, keeps)
        np.testing.assert_allclose(features.rows(nodes).numpy(), expected, atol=1e-10)
        np.testing.assert_allclose(features.rows(nodes[:5]).numpy(), expected[:5], atol=1e-10)
        np.testing.assert_allclose(features.scores(weight).numpy(), expected @ weight.numpy(), atol=1e-9)
        assert (features._kept is not None) == keeps


@pytest.mark.parametrize("feature_map", MAPS)
def test_a_learner_of_a_mapped_graph_equals_one_in_memory(feature_map: str, by_kernels: None, tmp_path: Path) -> None:
    graph = random_graph(n=80, f=6, classes=4)
    found = []
    for each in (graph, on_disk(graph, tmp_path)):
        learner = Learner(method="analytic", head="growing", feature_map=feature_map, kernel="linear")
        for task in TaskStream.from_classes(each):
            learner.observe(task)
        found.append(learner.predict_proba(torch.arange(80)))
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-9)


def test_pages_are_released_while_features_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, released = on_disk(random_graph(n=40, f=8), tmp_path), []
    monkeypatch.setattr(inputs_module, "ROW_BLOCK", 10)
    monkeypatch.setattr(inputs_module, "RELEASE_BYTES", 20 * 8 * 4)
    monkeypatch.setattr(inputs_module, "release", released.append)
    inputs = Inputs(graph)
    monkeypatch.setattr(inputs, "_x", graph.x)  # as where it is too large to be converted
    q = torch.randn(40, 3, dtype=torch.float64)
    expected = torch.from_numpy(dense_x(graph))
    torch.testing.assert_close(inputs.columns(2, 5), expected[:, 2:5])
    torch.testing.assert_close(inputs.t_matmul(q), expected.T @ q)
    torch.testing.assert_close(inputs.matmul(q[:8]), expected @ q[:8])
    assert len(released) == 2 * 4  # each pass, and that for the sums of the rows
    assert all(each is graph.x for each in released)


def test_only_many_rows_need_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, swept = random_graph(n=60, f=9), []
    columns = Inputs.columns
    monkeypatch.setattr(Inputs, "columns", lambda self, a, b: swept.append((a, b)) or columns(self, a, b))
    monkeypatch.setitem(BLOCK_BYTES, "cpu", 60 * 8 * 4 * 4)
    features = make(graph, "hops", keeps=False)
    features.rows(torch.arange(8))
    assert swept == []
    features.rows(torch.arange(20))
    assert swept == [(0, 4), (4, 8), (8, 9)]
    features.norms()  # of the same sweep
    features.scores(torch.zeros(features.width, 2))
    assert len(swept) == 3


class Allocations(TorchDispatchMode):
    """Bytes of the largest tensor that is made while this is on."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {each.untyped_storage().data_ptr() for each in tree_flatten((args, kwargs))[0] if plain(each)}
        out = func(*args, **(kwargs or {}))
        for each in tree_flatten(out)[0]:
            if plain(each) and each.untyped_storage().data_ptr() not in given:
                self.largest = max(self.largest, each.untyped_storage().nbytes())
        return out


def plain(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided and type(value) is Tensor


@pytest.mark.parametrize("feature_map", MAPS)
def test_no_tensor_is_as_large_as_the_features_or_the_edges(
    feature_map: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Learning and scoring allocate blocks only: no copy of X, of the edges, or of φ of all nodes."""
    n, f, degree, columns = 4096, 64, 32, 4  # and 64 training nodes: not fewer than features
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) // 128 % 2
    x = torch.randn(n, f, generator=generator) + y[:, None]
    period = torch.randint(n // 256, (n, degree), generator=generator)  # neighbors have the same class
    col = ((torch.arange(n)[:, None] + 256 * period) % n).flatten().int()
    for name, part in {"x": x, "rowptr": torch.arange(n + 1) * degree, "col": col}.items():
        np.save(tmp_path / f"{name}.npy", part.numpy())
    monkeypatch.setattr(propagation_module, "MATRIX_EDGES", 0)
    monkeypatch.setattr(kernels, "CHUNK_EDGES", 1 << 12)
    monkeypatch.setattr(row_chunks, "__defaults__", (1 << 12,))
    monkeypatch.setattr("ergnn.analytic.features.KEPT_BYTES", 0)
    monkeypatch.setattr("ergnn.analytic.inputs.ROW_BLOCK", 1 << 8)
    monkeypatch.setattr("ergnn.analytic.inputs.COPIED_BYTES", 0)
    monkeypatch.setattr("ergnn.analytic.inputs.SAMPLED_ROWS", 1 << 8)
    monkeypatch.setitem(BLOCK_BYTES, "cpu", n * 8 * MATRICES * columns)
    parts = (mapped(tmp_path / f"{name}.npy") for name in ("x", "rowptr", "col"))
    graph = Graph.from_csr(*parts, y, undirected=False)
    split = Split(torch.arange(0, n, 64), torch.arange(0), torch.arange(1, n, 16))
    task = TaskStream.from_classes(graph, split=split)[0]
    learner = Learner(method="analytic", head="growing", feature_map=feature_map, kernel="linear", lam=0.3)
    with Allocations() as seen:
        learner.observe(task)
        accuracy = learner.evaluate(task)
    assert accuracy > 0.9
    block = n * columns * 8  # φ is computed in float64 at this size
    assert block <= seen.largest <= 2 * block
    assert seen.largest < x.numel() * 4 / 2
    assert seen.largest < col.numel() * 4
