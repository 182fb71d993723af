"""Small random graphs for tests."""

from dataclasses import replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from ergnn.data import Graph, splits
from ergnn.data.graph import UNLABELED


def sparse_x(graph: Graph) -> Graph:
    """The same graph with features in CSR form."""
    return replace(graph, x=graph.x.to_sparse_csr())


def random_graph(
    n: int = 40,
    f: int = 8,
    classes: int = 4,
    seed: int = 0,
    p_edge: float = 0.1,
    directed: bool = False,
    self_loops: bool = False,
    isolated: int = 0,
    unlabeled: int = 0,
    sparse: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Graph:
    """A graph with balanced classes and a public split; each class needs at least four labeled nodes.

    Args:
        n: nodes.
        f: features, a class's mean plus noise, and about half of them zeros where ``sparse``.
        classes: classes.
        seed: of everything.
        p_edge: the chance of each edge.
        directed: whether an edge may go one way only.
        self_loops: whether nodes may link to themselves.
        isolated: so many nodes lose their edges.
        unlabeled: so many nodes lose their label.
        sparse: features as CSR.
        dtype: of the features.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=generator)
    y = torch.empty(n, dtype=torch.long)
    y[order] = torch.arange(n) % classes
    if unlabeled:
        y[order[-unlabeled:]] = UNLABELED
    center = torch.randn(classes + 1, f, generator=generator, dtype=dtype)
    x = center[y] + torch.randn(n, f, generator=generator, dtype=dtype)
    linked = torch.rand(n, n, generator=generator) < p_edge
    if not directed:
        linked = linked.triu() | linked.triu().T
    if not self_loops:
        linked.fill_diagonal_(False)
    if isolated:
        alone = torch.randperm(n, generator=generator)[:isolated]
        linked[alone], linked[:, alone] = False, False
    graph = Graph(
        x=x.clamp(min=0).to_sparse_csr() if sparse else x,
        edge_index=linked.nonzero().T.contiguous(),
        y=y,
        name="random",
        public_split=splits.fractions(y, train=0.5, val=0.25, test=0.25, seed=seed),
    )
    return graph.validate()


@st.composite
def graphs(draw: st.DrawFn, max_classes: int = 7, max_unlabeled: int = 3) -> Graph:
    """Random graphs of every shape that :func:`random_graph` makes, with four nodes or more in each class."""
    classes = draw(st.integers(2, max_classes))
    unlabeled = draw(st.integers(0, max_unlabeled))
    return random_graph(
        n=draw(st.integers(4 * classes + unlabeled, 6 * classes + unlabeled)),
        f=draw(st.integers(1, 6)),
        classes=classes,
        seed=draw(st.integers(0, 2**16)),
        p_edge=draw(st.sampled_from([0.0, 0.05, 0.2, 0.5])),
        directed=draw(st.booleans()),
        self_loops=draw(st.booleans()),
        isolated=draw(st.integers(0, 3)),
        unlabeled=unlabeled,
        sparse=draw(st.booleans()),
    )


def dense_adjacency(graph: Graph) -> Tensor:
    """Compute S from dense matrices: parallel edges are summed, and each node has one self-loop."""
    n, (source, target) = graph.num_nodes, graph.edge_index
    a = torch.zeros(n, n, dtype=torch.float64).index_put((target, source), torch.ones(1).double(), accumulate=True)
    a.fill_diagonal_(1.0)
    scale = a.sum(1).rsqrt()
    return scale.unsqueeze(1) * a * scale


def dense_powers(graph: Graph, hops: int) -> Tensor:
    """Compute ``S^K X`` of all nodes from dense matrices."""
    return torch.linalg.matrix_power(dense_adjacency(graph), hops) @ graph.dense_x().double()
