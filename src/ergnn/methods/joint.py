"""Joint: train on all tasks so far together, from scratch, the upper bound that replay approximates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data.stream import Task
from ergnn.methods import METHODS
from ergnn.methods.base import LearnerView, Method
from ergnn.nn.examples import Examples


@METHODS.register("joint", help="train on all nodes so far, from scratch at every task: the upper bound")
class Joint(Method):
    """Minimize the mean loss of all training nodes so far, from new parameters at every task."""

    needs_earlier_graph = True

    def __init__(self) -> None:
        self._seen: list[tuple[int, Tensor]] = []
        self._validation: list[tuple[int, Tensor]] = []

    @property
    def nbytes(self) -> int:
        """Ids and labels of all training nodes so far."""
        return sum(16 * nodes.numel() for _, nodes in self._seen)

    def check(self, task: Task) -> None:
        if task.own_graph:
            raise InputError(f"{task.name} has its own graph; joint training needs all tasks in one graph")

    def restarts(self, learner: LearnerView, task: Task) -> bool:
        return True

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        parts = [(task.id, task.train), *self._seen]
        joined = Examples.join([learner.examples(task.graph, nodes, of) for of, nodes in parts])
        return joined.weighted(1.0 / len(joined))

    def validation(self, learner: LearnerView, task: Task) -> Examples:
        """Return the validation nodes of all tasks so far."""
        parts = [(task.id, task.val), *self._validation]
        return Examples.join([learner.examples(task.graph, nodes, of) for of, nodes in parts])

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        self._seen.append((task.id, task.train))
        if learner.training.best_epoch:
            self._validation.append((task.id, task.val))
        return {}

    def remap_nodes(self, mapping: Callable[[Tensor], Tensor]) -> None:
        self._seen = [(of, mapping(nodes)) for of, nodes in self._seen]
        self._validation = [(of, mapping(nodes)) for of, nodes in self._validation]

    def forget_nodes(self, nodes: Tensor) -> int:
        before = sum(part.numel() for _, part in self._seen)
        self._seen, self._validation = (
            [(of, part[~torch.isin(part, nodes.to(part.device))]) for of, part in parts]
            for parts in (self._seen, self._validation)
        )
        return before - sum(part.numel() for _, part in self._seen)

    def state_dict(self) -> dict[str, Any]:
        return {"tasks": [of for of, _ in self._seen], "nodes": [nodes for _, nodes in self._seen]} | (
            {"validation": [nodes for _, nodes in self._validation]} if self._validation else {}
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._seen = list(zip(state["tasks"], state["nodes"], strict=True))
        self._validation = list(zip(state["tasks"], state.get("validation", []), strict=False))
