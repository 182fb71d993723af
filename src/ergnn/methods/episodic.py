"""Base class of methods that constrain gradients by remembered nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ergnn.config.registry import inherit_options
from ergnn.data.stream import Task
from ergnn.engine.losses import Objective
from ergnn.engine.step_hooks import StepHook
from ergnn.methods.base import LearnerView
from ergnn.methods.memory import MemoryMethod
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import Selection


class EpisodicMemory(MemoryMethod):
    """Base class of methods that train on the current task only, and constrain gradients by remembered nodes.

    Remembered nodes are examples of weight 0. They do not contribute to the loss, but the objective then includes the
    parameters of all heads that score them. e random training nodes per class are remembered.
    """

    @inherit_options(MemoryMethod, "budget_nodes", "budget_bytes")
    def __init__(self, **memory: Any) -> None:
        super().__init__(**memory)

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
        shuffled = torch.randperm(task.train.numel(), generator=task.generator(learner.seed, 37))
        labels = task.graph.y[task.train].cpu()[shuffled]
        positions = torch.cat([shuffled[labels == c][: self.per_class] for c in task.classes])
        nodes = task.train[positions.to(task.train.device)]
        return Selection(nodes, torch.zeros(nodes.numel(), device=nodes.device))
