"""Averaged gradient episodic memory (A-GEM): no step may increase the mean loss of the memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ergnn.data.hashing import stream_key
from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.sampled import SampledObjective
from ergnn.methods import METHODS
from ergnn.methods.episodic import Choose, EpisodicMemory, flat_gradient, mean_gradient, set_gradient
from ergnn.methods.memory import Scarce, check_at_least
from ergnn.methods.stacked_memory import StackedMemory, flat_gradients, set_gradients, stack_memories
from ergnn.replay.buffer import ReplayMode
from ergnn.step_hooks import StepHook


def project_on_average(gradient: Tensor, reference: Tensor) -> Tensor:
    """Project g onto the vectors with a nonnegative product with r: ``g − (gᵀr / rᵀr) r`` if ``gᵀr < 0``, else g."""
    product = gradient @ reference
    if float(product) >= 0:
        return gradient
    return gradient - (product / (reference @ reference)) * reference


class AverageConstraint(StepHook):
    """Step hook that applies the projection of A-GEM.

    Args:
        objective: objective of the task.
        memory: positions of all remembered examples in the objective.
        sample: number of remembered examples to sample per step for the reference gradient.
        seed: seed for sampling the examples, and their neighbors if the batches of the task sample neighbors.
    """

    def __init__(self, objective: Objective, memory: Tensor, sample: int, seed: int) -> None:
        self.objective, self.positions, self.sample, self.seed = objective, memory, sample, seed
        self.sampled = isinstance(objective, SampledObjective)
        self.memory = objective if self.sampled else objective.batch(memory)
        self.generator = torch.Generator().manual_seed(seed % 2**63)
        self._step = 0

    @classmethod
    def stacked(cls, hooks: Sequence[AverageConstraint]) -> StepHook | None:
        memory = None if any(hook.sampled for hook in hooks) else stack_memories([hook.memory for hook in hooks])
        return None if memory is None else StackedConstraint(memory, hooks)

    def skip(self, steps: int) -> None:
        for _ in range(steps):
            self._sample()
        self._step += steps

    def before_step(self, params: ParamDict) -> None:
        gradient = flat_gradient(params)
        projected = project_on_average(gradient, mean_gradient(self._reference(), params))
        self._step += 1
        if projected is not gradient:
            set_gradient(params, projected)

    def _reference(self) -> Objective:
        index = self._sample()
        if not self.sampled:
            return self.memory if index is None else self.memory.batch(index)
        positions = self.positions if index is None else self.positions[index]
        return self.objective.batch(positions, key=stream_key(self.seed, self._step))

    def _sample(self) -> Tensor | None:
        """Sample positions in the memory without replacement; None for all of a small memory."""
        if self.sample >= self.positions.numel():
            return None
        index = torch.randperm(self.positions.numel(), generator=self.generator)[: self.sample]
        return index.to(self.positions.device)


class StackedConstraint(StepHook):
    """:class:`AverageConstraint` of several models."""

    def __init__(self, memory: StackedMemory, hooks: Sequence[AverageConstraint]) -> None:
        self.memory, self.hooks = memory, hooks

    @property
    def recordable(self) -> bool:
        return all(hook.sample >= hook.positions.numel() for hook in self.hooks)  # nothing is sampled

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

    def __init__(
        self,
        per_class: int = 1,
        sample: int = 256,
        choose: Choose = "random",
        replay: ReplayMode = "live",
        hops: int = 2,
        scarce: Scarce = "error",
    ) -> None:
        check_at_least(1, sample=sample)
        super().__init__(per_class, choose, replay, hops, scarce)
        self.sample = sample

    def constraint(self, objective: Objective, memories: Sequence[Tensor], seed: int) -> StepHook:
        return AverageConstraint(objective, torch.cat(list(memories)), self.sample, seed)
