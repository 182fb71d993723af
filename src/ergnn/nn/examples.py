"""Nodes to score: their graph, heads, targets, weights and loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph

Loss = TypeVar("Loss", bound=Callable[..., Tensor])
LossFunction = Callable[[Tensor, Tensor, Mapping[str, Tensor]], Tensor]
"""``(logits [n, outputs], targets [n], extras) -> losses [n]``, one loss per example."""


def pure_loss(*options: str) -> Callable[[Loss], Loss]:
    """Declare that a loss computes row by row, from its arguments only, and never synchronizes with a GPU.

    Such losses of learners that are trained side by side are computed together, and steps are recorded on a GPU.

    Args:
        options: for the loss of a method, the attributes of the method (numbers or strings) that it depends on too.
    """

    def decorate(loss: Loss) -> Loss:
        loss.pure_options = options  # type: ignore[attr-defined]
        return loss

    return decorate


@pure_loss()
def cross_entropy(logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
    """Compute the default loss, ``−log softmax(logits)[target]`` (one term of Eq. 1 per node)."""
    return F.cross_entropy(logits, targets, reduction="none")


def loss_key(loss: LossFunction) -> tuple[Any, ...] | None:
    """Return all that a loss depends on; None if that is unknown. See :func:`pure_loss`."""
    if isinstance(loss, partial):  # a pure function of another loss
        outer, inner = loss_key(loss.func), loss.keywords.get("loss")
        key = loss_key(inner) if inner is not None and len(loss.keywords) == 1 and not loss.args else None
        return None if outer is None or key is None else (*outer, key)
    options: tuple[str, ...] | None = getattr(loss, "pure_options", None)
    if options is None:
        return None
    method = getattr(loss, "__self__", None)
    values = [getattr(method, name) for name in options]
    known = all(isinstance(value, bool | float | int | str) for value in values)
    return (getattr(loss, "__func__", loss), type(method), *values) if known else None


@dataclass(frozen=True, eq=False)
class Examples:
    """A set of labeled nodes, and the loss of each as a function of its scores.

    Args:
        graph: graph of the nodes.
        nodes: ``[n]``, node ids.
        heads: ``[n, r]``, heads that score each node; their outputs are concatenated.
        targets: ``[n]``, correct output among those (heads are padded to the largest width).
        weights: ``[n]``, factor of each example's loss in training.
        extras: additional values per example for the loss, ``[n, …]`` each, e.g. the outputs of a teacher.
        loss: function that returns the losses ``[n]`` of scores ``[n, outputs]``; see
            :meth:`ergnn.methods.Method.loss`.
    """

    graph: Graph
    nodes: Tensor
    heads: Tensor
    targets: Tensor
    weights: Tensor
    extras: Mapping[str, Tensor] = field(default_factory=dict)
    loss: LossFunction = cross_entropy

    def __len__(self) -> int:
        return int(self.nodes.numel())

    def __getitem__(self, index: Tensor | slice) -> Examples:
        """Return some of the examples, by position."""
        extras = {name: value[index] for name, value in self.extras.items()}
        values = (self.nodes[index], self.heads[index], self.targets[index], self.weights[index])
        return Examples(self.graph, *values, extras, self.loss)

    def select(self, index: Tensor, weights: Tensor | None) -> Examples:
        """Return some of the examples, with new weights unless these are None."""
        return self[index] if weights is None else self[index].weighted(weights)

    def weighted(self, weights: Tensor | float) -> Examples:
        value = torch.as_tensor(weights, dtype=torch.float32, device=self.nodes.device).expand(len(self))
        return replace(self, weights=value)

    def losses(self, logits: Tensor) -> Tensor:
        """Compute the loss of each example, ``[n]``, from its scores."""
        return self.loss(logits, self.targets, self.extras)

    @staticmethod
    def join(sets: list[Examples]) -> Examples:
        """Concatenate sets of examples, which must have the same graph, number of heads and loss."""
        if any(examples.graph is not sets[0].graph for examples in sets):
            raise InputError("examples of different graphs cannot be joined")
        if any(examples.loss != sets[0].loss for examples in sets):
            raise InputError("examples with different losses cannot be joined")
        names = list(sets[0].extras)
        if any(set(examples.extras) != set(names) for examples in sets):
            raise InputError(f"examples must have the same extras to be joined; the first set has: {names}")
        extras = {name: torch.cat([examples.extras[name] for examples in sets]) for name in names}
        columns = ("nodes", "heads", "targets", "weights")
        joined: dict[str, Any] = {key: torch.cat([getattr(examples, key) for examples in sets]) for key in columns}
        return replace(sets[0], **joined, extras=extras)
