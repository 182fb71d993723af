"""Conversion of inputs: a graph, a PyG ``Data``, a tuple ``(X, edge_index)``, or a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data.graph import UNLABELED, Graph, csr_tensor, pyg_labels


def is_graph(X: Any) -> bool:
    """Return whether X is a :class:`Graph` or a PyG ``Data``."""
    return isinstance(X, Graph) or hasattr(X, "edge_index")


def is_matrix(X: Any) -> bool:
    """Return whether X is a matrix: its rows are nodes without edges, and later calls have different nodes."""
    return not is_graph(X) and not isinstance(X, tuple)


def split_tuple(X: Any) -> tuple[Any, Tensor, Tensor | None]:
    """Return the features, directed edges ``[2, m]`` and, if given, edge weights of a tuple or a matrix."""
    if is_matrix(X):
        return X, torch.empty(2, 0, dtype=torch.long), None
    if len(X) not in (2, 3):
        raise InputError(
            f"X is a tuple of {len(X)}; a graph as a tuple is (X, edge_index) or (X, edge_index, edge_weight)"
        )
    edges, *weight = (torch.as_tensor(part if isinstance(part, Tensor) else np.asarray(part)) for part in X[1:])
    return X[0], edges, weight[0].float() if weight else None


def make_graph(x: Any, edge_index: Tensor, edge_weight: Tensor | None) -> Graph:
    """Create a graph without labels from a tensor, an array or a scipy matrix, and check all values."""
    if edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool:
        raise InputError(f"edge_index must contain node ids; got {edge_index.dtype}")
    if hasattr(x, "tocsr"):
        x = csr_tensor(x)
    elif not isinstance(x, Tensor):
        x = torch.from_numpy(x if x.flags.writeable else x.copy())
    y = torch.full((x.size(0),), UNLABELED, device=x.device)
    weight = None if edge_weight is None else edge_weight.to(x.device)
    return Graph(x, edge_index.to(x.device, torch.long), y, edge_weight=weight).validate()


def labels_of(X: Any) -> np.ndarray | None:
    """Return the labels of a graph, -1 for unlabeled nodes; None if the graph has no labels."""
    if not is_graph(X) or X.y is None:
        return None
    return (X.y if isinstance(X, Graph) else pyg_labels(X, "X")).cpu().numpy()


def nodes_of(nodes: Any, count: int, what: str) -> Tensor:
    """Return checked node ids, from a vector of ids or a boolean mask; all of ``count`` nodes for None."""
    if nodes is None:
        return torch.arange(count)
    ids = torch.as_tensor(nodes if isinstance(nodes, Tensor) else np.asarray(nodes)).cpu()
    if ids.dtype == torch.bool and ids.shape == (count,):
        return ids.nonzero().flatten()
    if ids.dim() != 1 or ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        raise InputError(
            f"{what}: nodes must be a vector of node ids, or a mask of {count} entries; "
            f"got {ids.dtype} of shape {tuple(ids.shape)}"
        )
    wrong = ids[(ids < 0) | (ids >= count)]
    if wrong.numel():
        raise InputError(f"{what}: nodes contains {int(wrong[0])}; nodes are 0 to {count - 1}")
    return ids.long()
