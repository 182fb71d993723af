"""Features of graphs without columns, from their edges: degree, walks that return, and who the neighbors are.

The id of a node is hashed to a row of :func:`identity_features`. Propagated over the edges, as every model does, these
rows are a random projection of each neighborhood. No feature depends on the order of nodes or edges, and none is
fitted, so that features follow from the edges that are there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

if TYPE_CHECKING:
    from ergnn.data.partial import Array, PartialGraph

WIDTH = 4096
DEGREES = 16
"""Columns of the degree: log2(1 + degree) is interpolated between whole numbers."""
RETURNS = 4
"""Columns of the probabilities p that a random walk returns after two and three steps: √p and √(1 − p) of each."""
IDENTITY = WIDTH - DEGREES - RETURNS
NONZEROS = 3
HOPS = 1
"""Features of a node depend on its list of neighbors, and on the lists of nodes within this many hops."""
UNIT = 2**20
"""Reciprocals of degrees are multiples of 1 / UNIT, so that sums do not depend on the order of their terms."""
DESCRIPTION = f"log degree, walks of 2 and 3 steps that return, neighbors hashed to {IDENTITY:,} columns"


def identity_features(ids: Sequence[str]) -> scipy.sparse.csr_matrix:
    """Hash each id to three of ``IDENTITY`` columns, with entries ±1/√3; they depend on no other node."""
    digests = b"".join(hashlib.blake2b(str(name).encode(), digest_size=8 * NONZEROS).digest() for name in ids)
    bits = np.frombuffer(digests, np.uint64)
    sign = np.where(bits & np.uint64(1), 1.0, -1.0).astype(np.float32) / np.float32(NONZEROS**0.5)
    column = ((bits >> np.uint64(1)) % np.uint64(IDENTITY)).astype(np.int64)
    row = np.repeat(np.arange(len(ids)), NONZEROS)
    return scipy.sparse.csr_matrix((sign, (row, column)), (len(ids), IDENTITY))


def structural_features(ids: Sequence[str], edge_index: Array) -> scipy.sparse.csr_matrix:
    """Features of all nodes of a graph, ``[n, WIDTH]``; loops and duplicate edges do not count."""
    source, target = edge_index[:, edge_index[0] != edge_index[1]]
    adjacency = scipy.sparse.csr_matrix((np.ones(len(source)), (target, source)), (len(ids), len(ids)))
    adjacency.data[:] = 1
    shape = _shape_features(adjacency, adjacency, np.diff(adjacency.indptr), np.diff(adjacency.indptr))
    return scipy.sparse.hstack([identity_features(ids), scipy.sparse.csr_matrix(shape)], "csr", np.float32)


def features_of(graph: PartialGraph, nodes: Array) -> Any:
    """Features of some nodes of a graph that is read in parts: stored ones, and those that follow from its edges."""
    features = graph.features(nodes)
    if not graph.structural:
        return features
    every = np.union1d(nodes, graph.neighbors(nodes)[1])
    row, source = graph.neighbors(every)[:2]
    row, source = row[source != every[row]], source[source != every[row]]
    degree, known = np.bincount(row, minlength=len(every)), np.isin(source, every)
    entries = np.ones(known.sum()), (row[known], np.searchsorted(every, source[known]))
    adjacency, rows = scipy.sparse.csr_matrix(entries, (len(every), len(every))), np.searchsorted(every, nodes)
    shape = _shape_features(adjacency[rows], adjacency, degree[rows], degree)
    return scipy.sparse.hstack([features, scipy.sparse.csr_matrix(shape)], "csr", np.float32)


def _shape_features(near: Any, adjacency: Any, degree: Array, degrees: Array) -> Array:
    """Columns of degree and returning walks of some nodes.

    ``adjacency`` has a 1 for each edge, by target and source, of these nodes and their neighbors, whose ``degrees`` are
    those of its rows; ``near`` are the rows of these nodes, and ``degree`` their degrees.
    """
    step = near.multiply(np.round(UNIT / np.maximum(degrees, 1)) / UNIT).tocsr()
    paths = [step.sum(1), (step @ adjacency).multiply(step).sum(1)]
    returns = np.clip(np.concatenate([np.asarray(p) for p in paths], 1) / np.maximum(degree, 1)[:, None], 0, 1)
    octave = np.minimum(np.log2(1 + degree), DEGREES - 1)[:, None]
    hat = np.maximum(0, 1 - np.abs(octave - np.arange(DEGREES)))
    return np.concatenate([hat, np.sqrt(returns), np.sqrt(1 - returns)], 1)
