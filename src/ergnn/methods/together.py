"""Selection of nodes to remember, for several learners in one pass."""

from __future__ import annotations

from collections.abc import Sequence

from ergnn.data.stream import Task
from ergnn.engine.objective import can_be_stacked
from ergnn.methods.base import LearnerView
from ergnn.methods.memory import SelectorMethod
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import select_together


def choose_together(learned: Sequence[tuple[LearnerView, Task, Examples]]) -> None:
    """Let learners that were trained side by side on a GPU choose the nodes to remember, in one pass if possible.

    On a CPU, they choose one after another, with the same order of sums as a single learner.
    """
    choosing = [
        (learner, task, trained_on)
        for learner, task, trained_on in learned
        if isinstance(method := learner.method, SelectorMethod)
        and method.chosen is None
        and can_be_stacked([] if learner.model is None else [learner.model])
        and learner.device.type != "cpu"
    ]
    methods = [learner.method for learner, _, _ in choosing if isinstance(learner.method, SelectorMethod)]
    contexts = [method.context(*parts) for method, parts in zip(methods, choosing, strict=True)]
    selections = select_together([method.selector for method in methods], contexts)
    for method, selection in zip(methods, selections, strict=True):
        method.chosen = selection
