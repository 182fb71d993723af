"""Finetune: continue training on each task without any memory, a lower bound."""

from __future__ import annotations

from ergnn.data.stream import Task
from ergnn.methods import METHODS
from ergnn.methods.base import LearnerView, Method, task_examples
from ergnn.nn.examples import Examples


@METHODS.register("finetune", help="continue training on each task, without memory: the lower bound")
class Finetune(Method):
    """Minimize only the mean loss of the task's training nodes."""

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        return task_examples(learner, task)
