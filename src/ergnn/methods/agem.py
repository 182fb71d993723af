"""Averaged gradient episodic memory (A-GEM): no step may increase the mean loss of the memory."""

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
from ergnn.methods.episodic import (
    EpisodicMemory,
    GradientConstraint,
    StackedMemory,
    flat_gradients,
    mean_gradient,
    set_gradients,
    stack_memories,
)


def project_on_average(gradient: Tensor, reference: Tensor) -> Tensor:
    """Project g onto the vectors with a nonnegative product with r: ``g − (gᵀr / rᵀr) r`` if ``gᵀr < 0``, else g."""
    product = gradient @ reference
    if float(product) >= 0:
        return gradient
    return gradient - (product / (reference @ reference)) * reference


class AverageConstraint(GradientConstraint):
    """Step hook that applies the projection of A-GEM.

    Args:
        objective: objective of the task.
        memory: positions of all remembered examples in the objective.
        sample: number of remembered examples to sample per step for the reference gradient.
        seed: seed for sampling the examples, and their neighbors if the batches of the task sample neighbors.
    """

    def __init__(self, objective: Objective, memory: Tensor, sample: int, seed: int) -> None:
        super().__init__(objective, [memory], seed)
        self.sample = sample
        self.uses_all = sample >= memory.numel()
        self.generator = torch.Generator().manual_seed(seed % 2**63)

    @classmethod
    def stacked(cls, hooks: Sequence[AverageConstraint]) -> StepHook | None:
        memory = None if any(hook.sampled for hook in hooks) else stack_memories([hook.memories[0] for hook in hooks])
        return None if memory is None else StackedConstraint(memory, hooks)

    def skip(self, steps: int) -> None:
        for _ in range(steps):
            self._sample()
        super().skip(steps)

    def projected(self, gradient: Tensor, params: ParamDict) -> Tensor:
        return project_on_average(gradient, mean_gradient(self._reference(), params))

    def _reference(self) -> Objective:
        positions, index = self.positions[0], self._sample()
        if not self.sampled:
            return self.memories[0] if index is None else self.memories[0].batch(index)
        positions = positions if index is None else positions[index]
        return self.objective.batch(positions, key=stream_key(self.seed, self.step))

    def _sample(self) -> Tensor | None:
        """Sample positions in the memory without replacement; None for all of a small memory."""
        if self.uses_all:
            return None
        index = torch.randperm(self.positions[0].numel(), generator=self.generator)[: self.sample]
        return index.to(self.positions[0].device)


class StackedConstraint(StepHook):
    """:class:`AverageConstraint` of several models."""

    def __init__(self, memory: StackedMemory, hooks: Sequence[AverageConstraint]) -> None:
        self.memory, self.hooks = memory, hooks
        self.recordable = all(hook.uses_all for hook in hooks)

    def before_step(self, params: ParamDict) -> None:
        reference = self.memory.gradients(params, [hook._sample() for hook in self.hooks])
        gradient = flat_gradients(params, len(self.hooks))
        product, norm = (gradient * reference).sum(1, keepdim=True), reference.square().sum(1, keepdim=True)
        set_gradients(params, gradient - product.clamp(max=0.0) / norm.clamp(min=1e-30) * reference)


@METHODS.register("agem", aliases=("a-gem",), help="no step may increase the memory's mean loss (averaged GEM)")
class AGEM(EpisodicMemory):
    """Averaged gradient episodic memory (Chaudhry et al., 2019): one constraint instead of one per task.

    Args:
        sample: number of remembered nodes to sample per step for the constraint (256 in the paper's experiments); all
            nodes of a smaller memory are used.
    """

    @inherit_options(EpisodicMemory)
    def __init__(self, *, sample: int = 256, **memory: Any) -> None:
        check_at_least(1, sample=sample)
        super().__init__(**memory)
        self.sample = sample

    def constraint(self, objective: Objective, memories: Sequence[Tensor], seed: int) -> StepHook:
        return AverageConstraint(objective, torch.cat(list(memories)), self.sample, seed)
