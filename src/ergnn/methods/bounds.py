"""Bounds: finetuning without a memory, and joint training on all tasks so far, which replay approximates."""

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


@METHODS.register("finetune", help="continue training on each task, without memory: the lower bound")
class Finetune(Method):
    """Minimize only the mean loss of the task's training nodes."""


@METHODS.register("joint", help="train on all nodes so far, from scratch at every task: the upper bound")
class Joint(Method):
    """Minimize the mean loss of all training nodes so far, from new parameters at every task.

    Attributes:
        nodes, val: training nodes and (if the best epoch is kept) validation nodes of each task.
    """

    needs_earlier_graph = True
    stored = ("nodes", "val")

    def __init__(self) -> None:
        self.nodes: list[Tensor] = []
        self.val: list[Tensor] = []

    @property
    def nbytes(self) -> int:
        """Ids and labels of all training nodes so far."""
        return sum(16 * nodes.numel() for nodes in self.nodes)

    def check(self, task: Task) -> None:
        if task.own_graph:
            raise InputError(f"{task.name} has its own graph; joint training needs all tasks in one graph")

    def restarts(self, learner: LearnerView, task: Task) -> bool:
        return True

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        joined = self._with_earlier(learner, task, learner.examples(task.graph, task.train, task.id), self.nodes)
        return joined.weighted(1.0 / len(joined))

    def validation(self, learner: LearnerView, task: Task) -> Examples:
        """Return the validation nodes of all tasks so far."""
        return self._with_earlier(learner, task, super().validation(learner, task), self.val)

    def _with_earlier(self, learner: LearnerView, task: Task, new: Examples, nodes: list[Tensor]) -> Examples:
        earlier = [learner.examples(task.graph, of_task, i) for i, of_task in enumerate(nodes) if of_task.numel()]
        return Examples.join([new, *earlier])

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        self.nodes.append(task.train)
        self.val.append(task.val if learner.training.best_epoch else task.val[:0])
        return {}

    def remap_nodes(self, mapping: Callable[[Tensor], Tensor]) -> None:
        self.nodes, self.val = (list(map(mapping, of_tasks)) for of_tasks in (self.nodes, self.val))

    def forget_nodes(self, nodes: Tensor) -> int:
        before = sum(map(len, self.nodes))
        self.nodes, self.val = (
            [of_task[~torch.isin(of_task, nodes.to(of_task.device))] for of_task in of_tasks]
            for of_tasks in (self.nodes, self.val)
        )
        return before - sum(map(len, self.nodes))
