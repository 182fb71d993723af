"""Finetune: learn each task from where the last one ended, and remember nothing. The lower bound."""

from __future__ import annotations

from ergnn.data.stream import Task
from ergnn.methods import METHODS
from ergnn.methods.base import LearnerView, Method
from ergnn.nn.examples import Examples


@METHODS.register("finetune", help="each task from where the last one ended, nothing remembered")
class Finetune(Method):
    """The mean loss of the task's own training nodes, nothing else."""

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        own = learner.examples(task.graph, task.train, task.id)
        return own.weighted(1.0 / len(own))
