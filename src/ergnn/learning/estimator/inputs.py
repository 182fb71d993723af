"""Conversion of inputs: a graph, a PyG ``Data``, a pair ``(X, edge_index)``, or a matrix; and of labels of any kind."""

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


def parts_of(X: Any) -> tuple[Any, Tensor, Tensor | None]:
    """Return the features, directed edges ``[2, m]`` and, if given, edge weights of a tuple or a matrix."""
    if is_matrix(X):
        return X, torch.empty(2, 0, dtype=torch.long), None
    if len(X) not in (2, 3):
        raise InputError(
            f"X is a tuple of {len(X)}; a graph as a tuple is (X, edge_index) or (X, edge_index, edge_weight)"
        )
    edges, *weight = (torch.as_tensor(part if isinstance(part, Tensor) else np.asarray(part)) for part in X[1:])
    return X[0], edges, weight[0].float() if weight else None


def as_graph(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Graph:
    """Create a graph without labels, and check all values."""
    if edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool:
        raise InputError(f"edge_index must contain node ids; got {edge_index.dtype}")
    y = torch.full((x.size(0),), UNLABELED, device=x.device)
    weight = None if edge_weight is None else edge_weight.to(x.device)
    return Graph(x, edge_index.to(x.device, torch.long), y, edge_weight=weight).validate()


def labels_of(X: Any) -> np.ndarray | None:
    """Return the labels of a graph, -1 for unlabeled nodes; None if the graph has no labels."""
    if not is_graph(X) or X.y is None:
        return None
    return (X.y if isinstance(X, Graph) else pyg_labels(X, "X")).cpu().numpy()


def to_torch(x: Any) -> Tensor:
    """Convert a checked float32 matrix to a tensor, in CSR form if it is sparse."""
    if hasattr(x, "tocsr"):
        return csr_tensor(x)
    return torch.from_numpy(x if x.flags.writeable else x.copy())


def nodes_of(nodes: Any, count: int, what: str) -> Tensor:
    """Return checked node ids, from a vector of ids or a boolean mask."""
    ids = torch.as_tensor(nodes if isinstance(nodes, Tensor) else np.asarray(nodes)).cpu()
    if ids.dtype == torch.bool and ids.shape == (count,):
        return ids.nonzero().flatten()
    if ids.dim() != 1 or ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        raise InputError(
            f"{what}: nodes must be a vector of node ids, or a mask of {count} entries; "
            f"got {ids.dtype} of shape {tuple(ids.shape)}"
        )
    if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < count:
        wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise InputError(f"{what}: nodes contains {wrong}; nodes are 0 to {count - 1}")
    return ids.long()


def check_once(nodes: Tensor, what: str) -> None:
    """Raise an error for duplicate nodes, e.g. labels passed as nodes by mistake."""
    unique, count = nodes.unique(return_counts=True)
    if not nodes.numel():
        raise InputError(f"{what}: nodes is empty")
    if bool((count > 1).any()):
        raise InputError(
            f"{what}: nodes contains {int(unique[count > 1][0])} more than once; "
            f"to pass labels, use {what}(graph, nodes=…, y=…)"
        )


class Labels:
    """Class ids of labels: 0, 1, 2, … in the order of first occurrence.

    Args:
        known: labels by class id.
    """

    def __init__(self, known: tuple[Any, ...] = ()) -> None:
        self.known = known
        self.classes = np.unique(np.array(known)) if known else np.empty(0)

    def with_more(self, labels: np.ndarray) -> Labels:
        """Return these labels and additional ones."""
        new = np.unique(labels)
        if self.known and _kind(new) != _kind(self.classes):
            raise InputError(
                f"labels are {new.dtype} such as {new.tolist()[0]!r}, but earlier ones were {self.classes.dtype} "
                f"such as {self.known[0]!r}; use one type"
            )
        return Labels(tuple(dict.fromkeys([*self.known, *new.tolist()])))

    def numbers(self, labels: np.ndarray) -> Tensor:
        """Return the class number of each label."""
        number = {label: i for i, label in enumerate(self.known)}
        return torch.tensor([number[label] for label in labels.tolist()], dtype=torch.long)

    def columns(self, numbers: Tensor) -> np.ndarray:
        """Return the positions in :attr:`classes` of the labels with these numbers."""
        return np.searchsorted(self.classes, np.array([self.known[number] for number in numbers.tolist()]))


def _kind(labels: np.ndarray) -> str:
    return "number" if labels.dtype.kind in "biuf" else "text"
