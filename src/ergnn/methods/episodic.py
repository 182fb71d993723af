"""Base class of methods that constrain gradients by remembered nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ergnn.config.errors import check_choice
from ergnn.config.registry import inherit_options
from ergnn.data.stream import Task
from ergnn.engine.losses import Objective
from ergnn.engine.step_hooks import StepHook
from ergnn.methods.base import LearnerView
from ergnn.methods.memory import MemoryMethod
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import Selection

Choose = Literal["random", "last"]


class EpisodicMemory(MemoryMethod):
    """Base class of methods that train on the current task only, and constrain gradients by remembered nodes.

    Remembered nodes are examples of weight 0. They do not contribute to the loss, but the objective then includes the
    parameters of all heads that score them.

    Args:
        choose: nodes to remember: e random training nodes per class (``random``), or the ``last`` training nodes of the
            task, regardless of class, as in the GEM paper.
    """

    @inherit_options(MemoryMethod, "budget_nodes", "budget_bytes")
    def __init__(self, *, choose: Choose = "random", **memory: Any) -> None:
        super().__init__(**memory)
        check_choice("choose", choose, Choose)
        self.choose = choose

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        new, *remembered = self.parts(learner, task)
        return Examples.join([new.weighted(1.0 / len(new)), *(examples.weighted(0.0) for examples in remembered)])

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        if not self.buffer.experiences:
            return None
        positions = torch.arange(task.train.numel(), objective.targets.numel(), device=objective.targets.device)
        memories = positions.split([len(experience) for experience in self.buffer.experiences])
        return self.constraint(objective, memories, learner.seed * 1_000_003 + task.id * 7919 + 47)

    @abstractmethod
    def constraint(self, objective: Objective, memories: Sequence[Tensor], seed: int) -> StepHook:
        """Return the hook that projects gradients; ``memories`` has the positions of each earlier task's examples."""

    def select(self, learner: LearnerView, task: Task, trained_on: Examples) -> Selection:
        count = self.per_class * task.num_classes
        generator = task.generator(learner.seed, 37)
        positions = torch.arange(task.train.numel())[-count:]
        if self.choose == "random":
            shuffled = torch.randperm(task.train.numel(), generator=generator)
            labels = task.graph.y[task.train].cpu()[shuffled]
            positions = torch.cat([shuffled[labels == c][: self.per_class] for c in task.classes])
        nodes = task.train[positions.to(task.train.device)]
        return Selection(nodes, torch.zeros(nodes.numel(), device=nodes.device))
