"""Gradient episodic memory (GEM): no step may increase the loss of an earlier task's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.config.registry import inherit_options
from ergnn.data.hashing import stream_key
from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.step_hooks import StepHook
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison
from ergnn.methods.episodic import (
    EpisodicMemory,
    GradientConstraint,
    StackedMemory,
    dual_variables,
    flat_gradients,
    mean_gradient,
    project,
    set_gradients,
    stack_memories,
)


class GEMProjection(GradientConstraint):
    """Step hook that projects the gradient if the step would increase the loss of a memory.

    Args:
        objective: objective of the task.
        memories: positions of each earlier task's examples in the objective.
        margin: γ.
        seed: seed for sampling neighbors at each step, if the batches of the task sample neighbors.
    """

    def __init__(self, objective: Objective, memories: Sequence[Tensor], margin: float, seed: int) -> None:
        super().__init__(objective, memories, seed)
        self.margin = margin
        self._rows: Tensor | None = None

    @classmethod
    def stacked(cls, hooks: Sequence[GEMProjection]) -> StepHook | None:
        alike = len({(hook.margin, len(hook.memories)) for hook in hooks}) == 1
        if not alike or any(hook.sampled for hook in hooks):
            return None
        memories = [stack_memories(parts) for parts in zip(*(hook.memories for hook in hooks), strict=True)]
        usable = [memory for memory in memories if memory is not None]
        return StackedProjection(usable, hooks[0].margin) if len(usable) == len(memories) else None

    def projected(self, gradient: Tensor, params: ParamDict) -> Tensor:
        if self._rows is None:  # one tensor for all steps
            self._rows = gradient.new_empty(len(self.positions), gradient.numel())
        for i, row in enumerate(self._rows):
            key = stream_key(self.seed, self.step, i)  # samples the memory's neighbors
            memory = self.objective.batch(self.positions[i], key=key) if self.sampled else self.memories[i]
            mean_gradient(memory, params, out=row)
        return project(gradient, self._rows, self.margin)


class StackedProjection(StepHook):
    """:class:`GEMProjection` of several models; ``memories`` has one entry per earlier task."""

    def __init__(self, memories: Sequence[StackedMemory], margin: float) -> None:
        self.memories, self.margin = list(memories), margin

    def before_step(self, params: ParamDict) -> None:
        rows = torch.stack([memory.gradients(params) for memory in self.memories], dim=1)
        gradient = flat_gradients(params, rows.size(0))
        products, grams = (rows @ gradient.unsqueeze(2)).squeeze(2), (rows @ rows.mT).cpu()
        v = torch.zeros(products.shape, dtype=torch.double)
        for i, own in enumerate(products.cpu()):
            if bool((own < 0).any()):
                v[i] = torch.from_numpy(dual_variables(grams[i], own, self.margin))
        set_gradients(params, gradient + (v.to(rows).unsqueeze(1) @ rows).squeeze(1))


@METHODS.register("gem", help="no step may increase the loss of an earlier task's memory (gradient episodic memory)")
class GEM(EpisodicMemory):
    """Gradient episodic memory (Lopez-Paz and Ranzato, 2017), its quadratic program solved exactly at each step.

    Args:
        margin: γ, lower bound of the dual variables, 0 or more; the paper's experiments use 0.5.
    """

    comparison = Comparison(search={"margin": (0.0, 0.5)})

    @inherit_options(EpisodicMemory)
    def __init__(self, *, margin: float = 0.0, **memory: Any) -> None:
        check_at_least(0, margin=margin)
        super().__init__(**memory)
        self.margin = float(margin)

    def constraint(self, objective: Objective, memories: Sequence[Tensor], seed: int) -> StepHook:
        return GEMProjection(objective, memories, self.margin, seed)
