"""Finetune: continue training on each task without any memory, a lower bound."""

from __future__ import annotations

from ergnn.data.stream import Task
from ergnn.methods import METHODS
from ergnn.methods.base import LearnerView, Method
from ergnn.nn.examples import Examples


@METHODS.register("finetune", help="continue training on each task, without memory: the lower bound")
class Finetune(Method):
    """Minimize only the mean loss of the task's training nodes."""

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        own = learner.examples(task.graph, task.train, task.id)
        return own.weighted(1.0 / len(own))
