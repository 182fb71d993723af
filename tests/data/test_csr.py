"""A graph created from in-neighbor lists equals the graph created from its edges."""

import pickle
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data import Graph, TaskStream
from ergnn.data.csr import CsrEdges, is_undirected, row_chunks
from ergnn.engine.adjacency import adjacency_of
from graphs import random_graph


def lists(graph: Graph) -> tuple[Tensor, Tensor]:
    """In-neighbors, ascending, in plain Python."""
    found: list[list[int]] = [[] for _ in range(graph.num_nodes)]
    for source, target in graph.edge_index.T.tolist():
        found[target].append(source)
    sizes = torch.tensor([0] + [len(part) for part in found])
    return sizes.cumsum(0), torch.tensor([v for part in found for v in sorted(part)], dtype=torch.int32)


def both(**options: bool) -> tuple[Graph, Graph]:
    graph = random_graph(**options)
    return graph, Graph.from_csr(graph.x, *lists(graph), graph.y, name="lists").validate()


def test_edges_are_the_same_and_materialized_only_when_read() -> None:
    plain, csr = both(directed=True, self_loops=True)
    assert isinstance(csr.edge_index, CsrEdges)
    assert (csr.num_edges, csr.edge_index.dtype) == (plain.num_edges, torch.long)
    assert sorted(csr.edge_index.T.tolist()) == sorted(plain.edge_index.T.tolist())
    assert type(csr.edge_index[0]) is Tensor
    for kept in (replace(csr, x=csr.x * 2), csr.to("meta"), deepcopy(csr), pickle.loads(pickle.dumps(csr))):
        assert isinstance(kept.edge_index, CsrEdges)
    assert csr.to("meta").edge_index.device.type == "meta"
    assert plain.csr is None
    assert csr.csr.col.dtype == torch.int32


def test_the_adjacency_uses_the_lists_without_copies() -> None:
    plain, csr = both(directed=True)
    assert adjacency_of(csr).col is csr.csr.col
    assert torch.equal(adjacency_of(csr).rowptr, adjacency_of(plain).rowptr)
    nodes = torch.tensor([3, 0, 3])
    for a, b in zip(adjacency_of(csr).incoming(nodes), adjacency_of(plain).incoming(nodes), strict=True):
        assert torch.equal(a.sort()[0], b.sort()[0])


@pytest.mark.parametrize("directed", [True, False])
def test_undirected_graphs_are_detected(directed: bool) -> None:
    plain, csr = both(directed=directed)
    assert adjacency_of(plain).undirected is adjacency_of(csr).undirected is not directed


def test_one_reversed_edge_is_detected() -> None:
    rowptr, col = torch.tensor([0, 1, 3, 4]), torch.tensor([1, 0, 2, 1])
    assert is_undirected(rowptr, col)
    assert not is_undirected(rowptr, torch.tensor([1, 0, 0, 1]))


def test_chunks_of_rows_cover_all_of_them() -> None:
    rowptr = torch.tensor([0, 0, 5, 6, 6, 30, 31, 31])
    for most in (1, 4, 7, 100):
        parts = list(row_chunks(rowptr, most))
        assert [part[0] for part in parts] == [0, *(part[1] for part in parts[:-1])]
        assert parts[-1][1] == 7
        for row, stop, first, last in parts:
            assert (first, last) == (int(rowptr[row]), int(rowptr[stop]))
            assert last - first <= most or stop == row + 1 or last == int(rowptr[row + 1])


def test_a_stream_with_all_edges_keeps_the_lists() -> None:
    graph = replace(both()[1], public_split=random_graph().public_split)
    stream = TaskStream.from_classes(graph, classes_per_task=2)
    assert isinstance(stream[0].graph.edge_index, CsrEdges)
    assert isinstance(stream.to("cpu")[0].graph.edge_index, CsrEdges)


def test_wrong_lists_are_rejected() -> None:
    x, y = torch.zeros(3, 2), torch.zeros(3, dtype=torch.long)
    with pytest.raises(InputError, match=r"rowptr is torch\.int32"):
        Graph.from_csr(x, torch.zeros(4, dtype=torch.int32), torch.zeros(0, dtype=torch.int32), y)
    with pytest.raises(InputError, match=r"col is torch\.float32"):
        Graph.from_csr(x, torch.zeros(4, dtype=torch.long), torch.zeros(0), y)
    with pytest.raises(InputError, match="rowptr must increase from 0 to 1"):
        Graph.from_csr(x, torch.tensor([0, 1, 0, 1]), torch.tensor([0]), y).validate()
    with pytest.raises(InputError, match="contains node 3"):
        Graph.from_csr(x, torch.tensor([0, 1, 1, 1]), torch.tensor([3]), y).validate()
