"""The formulas with dense matrices, as independent references."""

import numpy as np

from ergnn.data import Graph

Array = np.ndarray


def dense_s(graph: Graph, edge_weight: Array | None = None) -> Array:
    """``D̃^-½ (A + I) D̃^-½``; rows are targets."""
    a = np.zeros((graph.num_nodes, graph.num_nodes))
    weight = np.ones(graph.num_edges) if edge_weight is None else edge_weight
    np.add.at(a, (graph.edge_index[1].numpy(), graph.edge_index[0].numpy()), weight)
    np.fill_diagonal(a, 1.0)
    scale = a.sum(1) ** -0.5
    return scale[:, None] * a * scale


def dense_x(graph: Graph) -> Array:
    x = graph.dense_x().double().numpy()
    total = np.abs(x).sum(1, keepdims=True)
    return np.divide(x, total, out=np.zeros_like(x), where=total > 0)


def unit(z: Array, added: float = 0.0) -> Array:
    length = np.sqrt((z * z).sum(1, keepdims=True))
    return np.divide(z, np.sqrt(length**2 + added), out=np.zeros_like(z), where=length > 1e-13)


def dense_phi(name: str, s: Array, x: Array, square: float = 0.0) -> Array:
    """φ; ``square`` is the typical squared length of rows of a table."""
    if name == "ppr":
        z = x
        for _ in range(10):
            z = 0.9 * s @ z + 0.1 * x
        blocks = [z]
    else:
        blocks = [x, s @ x, s @ s @ x, s @ s @ s @ x]
    added = 2 * square * (name == "hops")
    phi = np.concatenate([unit(blocks[0], added), *map(unit, blocks[1:])], 1) / np.sqrt(len(blocks))
    return np.concatenate([phi, np.full((len(phi), 1), 0.3)], 1)


def weights_of(labels: Array, power: float = 0.5) -> Array:
    w = np.array([(labels == c).sum() ** -power for c in labels])
    return w * len(labels) / w.sum()


def one_hot(labels: Array) -> Array:
    return (labels[:, None] == np.unique(labels)[None, :]).astype(float)


def dense_ridge(phi: Array, y: Array, w: Array, lam: float) -> Array:
    return np.linalg.solve(phi.T @ (w[:, None] * phi) + lam * np.eye(phi.shape[1]), phi.T @ (w[:, None] * y))
