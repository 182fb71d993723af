"""Graphs that are read in parts, compared with plain sets of edges."""

from collections.abc import Sequence

import numpy as np
import pytest
import scipy.sparse

from ergnn.config.errors import InputError
from ergnn.data.partial import Array, ExtendedGraph, find_all, read_subgraph
from ergnn.data.tables import FormatError, Limits


class Listed:
    """Nodes ``n0``, ``n1``, … with a set of edges; some numbers are not in use."""

    def __init__(self, nodes: list[int], edges: set[tuple[int, int]], x: np.ndarray, dense: bool) -> None:
        self.nodes, self.edges, self.x, self.dense = nodes, edges, x, dense
        self.num_nodes, self.next_node, self.num_features = len(nodes), len(x), x.shape[1]
        self.encoding, self.structural = "", False

    def find(self, ids: Sequence[str]) -> Array:
        numbers = {f"n{node}": node for node in self.nodes}
        return np.array([numbers.get(name, -1) for name in ids], np.int64)

    def neighbors(self, nodes: Array) -> tuple[Array, Array, None]:
        pairs = sorted((place, a) for place, node in enumerate(nodes) for a, b in self.edges if b == node)
        row, source = np.array(pairs, np.int64).reshape(-1, 2).T
        return row, source, None

    def features(self, nodes: Array) -> np.ndarray | scipy.sparse.csr_matrix:
        return self.x[nodes] if self.dense else scipy.sparse.csr_matrix(self.x[nodes])


def listed(dense: bool = True, seed: int = 0, nodes: int = 40, edges: int = 60) -> Listed:
    rng = np.random.default_rng(seed)
    used = [node for node in range(nodes) if node % 9]
    pairs = {(int(a), int(b)) for a, b in rng.choice(used, (edges, 2))}
    return Listed(used, pairs, (rng.random((nodes, 6)) * (rng.random((nodes, 6)) < 0.5)).astype(np.float32), dense)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("hops", [0, 1, 2, 3])
def test_a_part_has_all_nodes_within_reach_and_the_edges_between_them(hops: int, dense: bool) -> None:
    graph, roots = listed(dense), np.array([22, 4, 4, 13])
    inside = reached = set(roots.tolist())
    for _ in range(hops):
        inside, reached = reached, reached | {a for a, b in graph.edges if b in reached}
    local = read_subgraph(graph, roots, hops, Limits(), (np.array([4, 22]), np.array([1, 0])))
    assert local.nodes.tolist() == sorted(reached)
    np.testing.assert_array_equal(local.nodes[local.local_ids(roots).numpy()], roots)
    empty = len(local.nodes)
    pairs = {tuple(pair) for pair in local.graph.edge_index.T.tolist()}
    found = {(int(local.nodes[a]), int(local.nodes[b])) for a, b in pairs if a != empty}
    inner = {(a, b) for a, b in graph.edges if b in inside or (a == b and b in reached)}
    assert found == (inner if hops else set())
    degree = np.bincount(local.graph.edge_index[1], minlength=empty + 1).tolist()
    assert degree == [sum(b == node for _, b in graph.edges) if hops else 0 for node in [*local.nodes, -1]]
    x = local.graph.x if dense else local.graph.x.to_dense()
    np.testing.assert_array_equal(x.numpy(), np.vstack([graph.x[local.nodes], np.zeros(6, np.float32)]))
    labels = {int(node): int(label) for node, label in zip(local.nodes, local.graph.y, strict=False) if label >= 0}
    assert labels == {4: 1, 22: 0}


@pytest.mark.parametrize("dense", [True, False])
def test_an_extended_graph_is_the_graph_with_more_nodes_and_edges(dense: bool) -> None:
    base, x = listed(dense), np.random.default_rng(1).random((2, 6)).astype(np.float32)
    more = {(40, 41), (41, 40), (40, 4), (4, 40), (41, 1)}
    edges = np.array(sorted(more)).T
    found = ExtendedGraph(base, ["a", "b"], x if dense else scipy.sparse.csr_matrix(x), edges)
    whole = Listed([*base.nodes, 40, 41], base.edges | more, np.vstack([base.x, x]), dense)
    assert found.find(["b", "n4", "n9", "a"]).tolist() == [41, 4, -1, 40]
    nodes = np.array([1, 4, 22, 40, 41])
    for one, other in zip(found.neighbors(nodes), whole.neighbors(nodes), strict=True):
        np.testing.assert_array_equal(one, other)
    one, other = (each.features(nodes) for each in (found, whole))
    np.testing.assert_array_equal(one if dense else one.toarray(), other if dense else other.toarray())
    assert (found.num_nodes, found.next_node) == (whole.num_nodes, whole.next_node)


def test_unknown_ids_and_too_many_features_are_refused() -> None:
    graph = listed()
    assert find_all(graph, ["n4", "n1"]).tolist() == [4, 1]
    with pytest.raises(InputError, match=r"node 'n9' is not in the graph \(2 such id"):
        find_all(graph, ["n1", "n9", "x"])
    graph.num_features = 10**6
    with pytest.raises(FormatError, match="features take"):
        read_subgraph(graph, np.array([4]), 1, Limits(megabytes=1))
