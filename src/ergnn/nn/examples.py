"""Nodes to be scored: where they are, which heads score them, and which output is right."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ergnn.data.graph import Graph
from ergnn.errors import InputError


@dataclass(frozen=True, eq=False)
class Examples:
    """A set of labelled nodes.

    Args:
        graph: the graph they live in.
        nodes: ``[n]`` node ids.
        heads: ``[n, r]``, the heads that score each node; their outputs stand side by side.
        targets: ``[n]``, the right output among those (in heads of equal, largest width).
        weights: ``[n]``, what each example's loss is multiplied with in training.
    """

    graph: Graph
    nodes: Tensor
    heads: Tensor
    targets: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return int(self.nodes.numel())

    def __getitem__(self, index: Tensor) -> Examples:
        """Some of the examples, by position."""
        return Examples(self.graph, self.nodes[index], self.heads[index], self.targets[index], self.weights[index])

    def weighted(self, weights: Tensor | float) -> Examples:
        value = torch.as_tensor(weights, dtype=torch.float32, device=self.nodes.device).expand(len(self))
        return Examples(self.graph, self.nodes, self.heads, self.targets, value)

    @staticmethod
    def join(parts: list[Examples]) -> Examples:
        """Several sets in one; all must live in one graph and be scored by equally many heads."""
        if any(part.graph is not parts[0].graph for part in parts):
            raise InputError("examples of different graphs cannot be joined")
        stack = [torch.cat([getattr(part, key) for part in parts]) for key in ("nodes", "heads", "targets", "weights")]
        return Examples(parts[0].graph, *stack)
