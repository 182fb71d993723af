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
        self._earlier: list[tuple[int, Tensor, Tensor]] = []
        """Number, training nodes and (if the best epoch is kept) validation nodes of each task."""

    @property
    def nbytes(self) -> int:
        """Ids and labels of all training nodes so far."""
        return sum(16 * train.numel() for _, train, _ in self._earlier)

    def check(self, task: Task) -> None:
        if task.own_graph:
            raise InputError(f"{task.name} has its own graph; joint training needs all tasks in one graph")

    def restarts(self, learner: LearnerView, task: Task) -> bool:
        return True

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        earlier = [learner.examples(task.graph, train, number) for number, train, _ in self._earlier]
        joined = Examples.join([learner.examples(task.graph, task.train, task.id), *earlier])
        return joined.weighted(1.0 / len(joined))

    def validation(self, learner: LearnerView, task: Task) -> Examples:
        """Return the validation nodes of all tasks so far."""
        earlier = [learner.examples(task.graph, val, number) for number, _, val in self._earlier if val.numel()]
        return Examples.join([super().validation(learner, task), *earlier])

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        self._earlier.append((task.id, task.train, task.val if learner.training.best_epoch else task.val[:0]))
        return {}

    def remap_nodes(self, mapping: Callable[[Tensor], Tensor]) -> None:
        self._earlier = [(number, mapping(train), mapping(val)) for number, train, val in self._earlier]

    def forget_nodes(self, nodes: Tensor) -> int:
        def without(own: Tensor) -> Tensor:
            return own[~torch.isin(own, nodes.to(own.device))]

        before = self.nbytes
        self._earlier = [(number, without(train), without(val)) for number, train, val in self._earlier]
        return (before - self.nbytes) // 16

    def state_dict(self) -> dict[str, Any]:
        state = {"tasks": [number for number, *_ in self._earlier], "nodes": [train for _, train, _ in self._earlier]}
        validation = [val for *_, val in self._earlier]
        return {**state, "validation": validation} if any(nodes.numel() for nodes in validation) else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        validation = state.get("validation") or [nodes[:0] for nodes in state["nodes"]]
        self._earlier = list(zip(state["tasks"], state["nodes"], validation, strict=True))
