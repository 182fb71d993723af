"""Joint: learn all tasks seen so far anew, together. What replay is a cheap stand-in for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from ergnn.data.stream import Task
from ergnn.errors import InputError
from ergnn.methods import METHODS
from ergnn.methods.base import Method
from ergnn.nn.examples import Examples

if TYPE_CHECKING:
    from ergnn.learner import Learner


@METHODS.register("joint", help="all training nodes seen so far, from scratch at every task: the upper bound")
class Joint(Method):
    """The mean loss of every training node seen so far, from new parameters at every task."""

    from_scratch = True

    def __init__(self) -> None:
        self._seen: list[tuple[int, Tensor]] = []

    def check(self, task: Task) -> None:
        if task.own_graph:
            raise InputError(f"{task.name} has a graph of its own; joint training needs all tasks in one graph")

    def examples(self, learner: Learner, task: Task, number: int) -> Examples:
        parts = [(number, task.train), *self._seen]
        joined = Examples.join([learner.examples(task.graph, nodes, of) for of, nodes in parts])
        return joined.weighted(1.0 / len(joined))

    def after_task(self, learner: Learner, task: Task, number: int, trained_on: Examples) -> dict[str, Any]:
        self._seen.append((number, task.train))
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"tasks": [number for number, _ in self._seen], "nodes": [nodes for _, nodes in self._seen]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._seen = list(zip(state["tasks"], state["nodes"], strict=True))
