"""Drift: a permutation test, with an exact level, of whether new nodes have the same distribution as earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph

Array = NDArray[Any]

ALPHA = 0.01
"""Share of false alarms: probability of an alarm, over all aspects together, if the distribution is unchanged."""

PERMUTATIONS = 999
SAMPLES = 300
"""Maximum number of nodes per side; drawn at random if there are more."""


@dataclass(frozen=True)
class Drift:
    """The result of :func:`drift_test`.

    Args:
        p: adjusted p-value of each aspect, e.g. ``features``.
        alarm: whether any of them is at most ``alpha``.
        alpha: share of false alarms.
        reference: number of earlier nodes.
        new: number of new nodes.
    """

    p: dict[str, float]
    alarm: bool
    alpha: float
    reference: int
    new: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def node_aspects(graph: Graph, nodes: Array) -> dict[str, Any]:
    """The aspects of nodes that :func:`drift_test` compares without a model: one matrix per aspect, dense or CSR.

    ``features`` are the nodes' own, ``neighborhoods`` the means over their in-neighbors (zero without any), and
    ``degrees`` is ``log(1 + in-degree)``.
    """
    source, target = graph.edge_index.cpu().numpy()
    size = graph.num_nodes
    adjacency = scipy.sparse.csr_matrix((np.ones(len(source)), (target, source)), (size, size))[nodes]
    degree = np.asarray(adjacency.sum(1))
    x = _features(graph)
    mean = scipy.sparse.diags((1 / np.maximum(degree, 1)).ravel()) @ adjacency @ x
    return {"features": x[nodes], "neighborhoods": mean, "degrees": np.log1p(degree)}


def stack_aspects(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Concatenate the aspects of several groups of nodes."""
    sparse = {name: scipy.sparse.issparse(rows) for name, rows in parts[0].items()}
    return {
        name: scipy.sparse.vstack([part[name] for part in parts], "csr")
        if sparse[name]
        else np.concatenate([part[name] for part in parts])
        for name in parts[0]
    }


def _features(graph: Graph) -> Any:
    if not graph.is_sparse:
        return graph.x.cpu().numpy()
    x = graph.x.cpu()
    return scipy.sparse.csr_matrix((x.values(), x.col_indices(), x.crow_indices()), tuple(x.shape))


def drift_test(
    reference: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    alpha: float = ALPHA,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Drift:
    """Compare rows of earlier and of new nodes in several aspects at once.

    The statistic of an aspect is the energy distance ``2 E‖X−Y‖ − E‖X−X'‖ − E‖Y−Y'‖`` (Székely and Rizzo, 2013), which
    is zero only for equal distributions. All aspects are computed for the same random permutations of the nodes. With
    statistics standardized over permutations, the adjusted p-value of an aspect is the share of permutations whose
    *largest* statistic reaches the aspect's own (single-step maxT; Westfall and Young, 1993). If earlier and new nodes
    are exchangeable, an alarm has probability at most ``alpha``, whatever the dependence between aspects; it is exactly
    ``alpha`` without ties if ``alpha (permutations + 1)`` is a whole number.

    Args:
        reference: rows of earlier nodes by aspect, dense or in CSR form.
        new: the same aspects of new nodes.
        alpha: share of false alarms.
        permutations: number of permutations.
        seed: seed of the permutations.
    """
    if not 0 < alpha < 1:
        raise InputError(f"alpha is {alpha}; it must be above 0 and below 1")
    if not reference or list(reference) != list(new):
        raise InputError(f"aspects are {list(reference)} and {list(new)}; they must be the same, and at least one")
    (n, *others), (m, *more) = ({rows.shape[0] for rows in part.values()} for part in (reference, new))
    if others or more or not n or not m:
        raise InputError("every aspect needs the same nodes, and at least one on each side")
    rng = np.random.default_rng(seed)
    signs = np.repeat([1 / n, -1 / m], [n, m]).astype(np.float32)
    columns = np.stack([signs, *(rng.permutation(signs) for _ in range(permutations))], 1)
    scores = np.stack([_standardized(_distances(reference[name], new[name]), columns) for name in reference])
    largest = scores.max(0)
    p = {
        name: float((largest >= own - 1e-6).mean())  # ties count, up to rounding
        for name, own in zip(reference, scores[:, 0], strict=True)
    }
    return Drift(p, min(p.values()) <= alpha, alpha, n, m)


def _standardized(distances: Array, columns: Array) -> Array:
    """``−sᵀ D s`` of each column s, the first of which is the observed one, in standard deviations from their mean."""
    values = -np.einsum("ij,ij->j", columns, distances @ columns, dtype=np.float64)
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-9 * distances.mean() else np.zeros_like(values)


def _distances(reference: Any, new: Any) -> Array:
    """Euclidean distances between all rows of both sides; columns of dense rows are scaled to unit variance."""
    if scipy.sparse.issparse(reference):
        rows = scipy.sparse.vstack([reference, new], "csr")
        gram = (rows @ rows.T).toarray()
    else:
        rows = np.concatenate([reference, new]).astype(np.float64)
        spread = rows.std(0)
        rows = (rows - rows.mean(0)) / np.where(spread > 0, spread, 1.0)
        gram = rows @ rows.T
    square = gram.diagonal()
    return np.sqrt(np.maximum(square[:, None] + square - 2 * gram, 0)).astype(np.float32)
