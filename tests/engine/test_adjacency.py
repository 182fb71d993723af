from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.utils import add_remaining_self_loops, add_self_loops, remove_self_loops

from ergnn.data import Graph
from ergnn.engine import slots as rows_in_slots
from ergnn.engine.adjacency import Adjacency, adjacency_of, merge_loops
from ergnn.engine.blocks import make_block
from ergnn.engine.slots import SlotRows
from nn.cases import AGGREGATIONS, assert_near, messy_graphs


def some_nodes(data: st.DataObject, graph: Graph) -> Tensor:
    return torch.tensor(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), max_size=8)), dtype=torch.long)


def sorted_edges(edge_index: Tensor) -> list[tuple[int, int]]:
    return sorted(tuple(edge) for edge in edge_index.T.tolist())


def edges_of(adj: Adjacency) -> list[tuple[int, int]]:
    pointers, sources = adj.rowptr.tolist(), adj.col.tolist()
    return sorted((s, v) for v in range(adj.num_nodes) for s in sources[pointers[v] : pointers[v + 1]])


def reached(graph: Graph, nodes: Tensor, hops: int) -> set[int]:
    """Return the nodes from which one of ``nodes`` can be reached in at most this number of steps."""
    found = set(nodes.tolist())
    for _ in range(hops):
        found |= {s for s, t in graph.edge_index.T.tolist() if t in found}
    return found


@settings(max_examples=50)
@given(messy_graphs(), st.data())
def test_incoming_edges_match_a_loop(graph: Graph, data: st.DataObject) -> None:
    nodes = some_nodes(data, graph)
    row, source = Adjacency(graph.edge_index, graph.num_nodes).incoming(nodes)
    edges = graph.edge_index.T.tolist()
    expected = [(i, s) for i, node in enumerate(nodes.tolist()) for s, t in edges if t == node]
    assert list(zip(row.tolist(), source.tolist(), strict=True)) == expected


@settings(max_examples=50)
@given(messy_graphs())
def test_self_loops_match_those_added_by_gat_and_gcn(graph: Graph) -> None:
    adj = Adjacency(graph.edge_index, graph.num_nodes)
    assert edges_of(adj) == sorted_edges(graph.edge_index)
    assert adj.degree.tolist() == [int((graph.edge_index[1] == v).sum()) for v in range(graph.num_nodes)]
    remaining, _ = add_remaining_self_loops(graph.edge_index, num_nodes=graph.num_nodes)
    renewed, _ = add_self_loops(remove_self_loops(graph.edge_index)[0], num_nodes=graph.num_nodes)
    plain, nodes = adj.without_loops(), torch.arange(graph.num_nodes)
    row, others = plain.incoming(nodes)
    target, source = merge_loops(row, plain.degrees(nodes), others, nodes)
    assert sorted_edges(torch.stack([source, target])) == sorted_edges(remaining) == sorted_edges(renewed)
    last = torch.cat([target.diff() > 0, torch.ones(1, dtype=torch.bool)])
    assert torch.equal(source[last], target[last])


@settings(max_examples=40)
@given(messy_graphs(), st.data())
def test_block_sources_are_exactly_the_neighborhood(graph: Graph, data: st.DataObject) -> None:
    nodes = some_nodes(data, graph)
    adj = adjacency_of(graph)
    for aggregation in AGGREGATIONS:
        read = nodes
        for hops in range(1, 4):
            block, read = make_block(adj, AGGREGATIONS[aggregation], read, torch.zeros_like(read), 1)
            expected = reached(graph, nodes, 0 if aggregation == "none" else hops)
            assert read.tolist() == sorted(expected)
            assert block.src.count == len(expected)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 3), max_size=9), st.sampled_from([1, 4]))
def test_rows_are_multiplied_by_the_matrix_of_their_slot(slots: list[int], count: int) -> None:
    slot = torch.tensor(slots, dtype=torch.long) % count
    generator = torch.Generator().manual_seed(len(slots))
    h = torch.randn(slot.numel(), 3, generator=generator, dtype=torch.float64)
    weight = torch.randn(count, 3, 2, generator=generator, dtype=torch.float64)
    rows = SlotRows(slot, count)
    expected = [h[i] @ weight[s] for i, s in enumerate(slot.tolist())]
    assert_near(rows.matmul(h, weight), torch.stack(expected) if expected else torch.empty(0, 2, dtype=h.dtype))
    each = rows.each(weight).expand(slot.numel(), 3, 2)
    assert torch.equal(each, weight[slot])


class Largest(TorchDispatchMode):
    """Record the largest number of entries of a result."""

    entries = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, list | tuple) else [result]:
            self.entries = max(self.entries, value.numel() if isinstance(value, torch.Tensor) else 0)
        return result


def test_rows_of_many_small_slots_are_multiplied_in_limited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = torch.cat([torch.arange(100).repeat(2), torch.zeros(100, dtype=torch.long)])
    generator = torch.Generator().manual_seed(0)
    h, weight = torch.randn(300, 4, generator=generator), torch.randn(100, 4, 2, generator=generator)
    rows, found = SlotRows(slot, 100), []
    for most in (rows_in_slots.ENTRIES, 64):
        monkeypatch.setattr(rows_in_slots, "ENTRIES", most)
        own = weight.clone().requires_grad_()
        with Largest() as largest:
            out = rows.matmul(h, own)
            out.square().sum().backward()
        found.append((out, own.grad, largest.entries))
    assert torch.equal(found[0][0], found[1][0])
    assert_near(found[0][1], found[1][1], 1e-6)
    assert [entries for _, _, entries in found] == [198 * 8, h.numel()]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_graphs_without_edges_and_blocks_without_rows_are_supported(aggregation: str) -> None:
    adj = Adjacency(torch.empty(2, 0, dtype=torch.long), 4)
    block, read = make_block(adj, AGGREGATIONS[aggregation], torch.tensor([3, 1]), torch.tensor([0, 0]), 1)
    assert read.tolist() == [1, 3]
    loops = aggregation in ("attention", "gcn")
    assert torch.equal(block.aggregate(torch.eye(2)), torch.eye(2).flip(0) if loops else torch.zeros(2, 2))
    empty, none = make_block(
        adj, AGGREGATIONS[aggregation], torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long), 1
    )
    assert none.numel() == 0
    assert empty.aggregate(torch.empty(0, 2)).shape == (0, 2)
