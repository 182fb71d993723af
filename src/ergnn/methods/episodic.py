"""Base class of methods that constrain gradients by remembered nodes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ergnn.config.errors import check_choice
from ergnn.data.stream import Task
from ergnn.engine.losses import Objective
from ergnn.engine.step_hooks import StepHook
from ergnn.methods.base import LearnerView, Method, check_at_least
from ergnn.methods.memory import Scarce, check_scarce
from ergnn.nn.examples import Examples
from ergnn.replay.buffer import ExperienceBuffer, ReplayMode

Choose = Literal["random", "last"]


class EpisodicMemory(Method):
    """Base class of methods that train on the current task only, and constrain gradients by remembered nodes.

    Remembered nodes are examples of weight 0. They do not contribute to the loss, but the objective then includes the
    parameters of all heads that score them.

    Args:
        per_class: e, number of nodes to remember per class.
        choose: nodes to remember: e random training nodes per class (``random``), or the ``last`` training nodes of the
            task, regardless of class, as in the GEM paper.
        replay: edges of a replayed node: those in the current graph (``live``), none (``isolated``), or those of the
            neighborhood stored with it (``ego``).
        hops: radius of a stored neighborhood, in hops.
        scarce: action for a class with fewer than e training nodes: raise an error (``error``), or remember all its
            nodes (``keep``).
    """

    def __init__(
        self,
        per_class: int = 1,
        choose: Choose = "random",
        replay: ReplayMode = "live",
        hops: int = 2,
        scarce: Scarce = "error",
    ) -> None:
        check_at_least(1, per_class=per_class)
        check_choice("choose", choose, Choose)
        check_choice("scarce", scarce, Scarce)
        self.per_class, self.choose, self.scarce = per_class, choose, scarce
        self.buffer: ExperienceBuffer = ExperienceBuffer(replay, hops)

    def check(self, task: Task) -> None:
        check_scarce(task, self.per_class, self.scarce)
        self.buffer.check(task)

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        graph, remembered = self.buffer.attach(task.graph)
        own = learner.examples(graph, task.train, task.id)
        parts = [own.weighted(1.0 / len(own))]
        for experience, nodes in zip(self.buffer.experiences, remembered, strict=True):
            parts.append(learner.examples(graph, nodes, experience.task).weighted(0.0))
        return Examples.join(parts)

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        if not self.buffer.experiences:
            return None
        positions = torch.arange(task.train.numel(), objective.targets.numel(), device=objective.targets.device)
        memories = positions.split([len(part) for part in self.buffer.experiences])
        return self.constraint(objective, memories, learner.seed * 1_000_003 + task.id * 7919 + 47)

    @abstractmethod
    def constraint(self, objective: Objective, memories: Sequence[Tensor], seed: int) -> StepHook:
        """Return the hook that projects gradients; ``memories`` has the positions of each earlier task's examples."""

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        count = self.per_class * task.num_classes
        generator = task.generator(learner.seed, 37)
        positions = torch.arange(task.train.numel())[-count:]
        if self.choose == "random":
            shuffled = torch.randperm(task.train.numel(), generator=generator)
            labels = task.graph.y[task.train].cpu()[shuffled]
            positions = torch.cat([shuffled[labels == c][: self.per_class] for c in task.classes])
        nodes = task.train[positions.to(task.train.device)]
        self.buffer.add(task.graph, task.id, nodes, torch.zeros(nodes.numel(), device=nodes.device))
        return {}
