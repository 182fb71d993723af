"""Averaged gradient episodic memory (A-GEM): no step may increase the mean loss of the memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ergnn.data.hashing import stream_key
from ergnn.engine.losses import Objective, ParamDict
from ergnn.methods import METHODS
from ergnn.methods.base import check_at_least
from ergnn.methods.episodic import Choose, EpisodicMemory
from ergnn.methods.gradients import GradientConstraint, mean_gradient
from ergnn.methods.memory import Scarce
from ergnn.replay.buffer import ReplayMode
from ergnn.step_hooks import StepHook


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
        self.generator = torch.Generator().manual_seed(seed % 2**63)

    def skip(self, steps: int) -> None:
        for _ in range(steps):
            self._sample()
        super().skip(steps)

    def projected(self, gradient: Tensor, params: ParamDict) -> Tensor:
        return project_on_average(gradient, mean_gradient(self._reference(), params))

    def _reference(self) -> Objective:
        positions = self.positions[0]
        use_all = self.sample >= positions.numel()
        if not self.sampled:
            return self.memories[0] if use_all else self.memories[0].batch(self._sample())
        positions = positions if use_all else positions[self._sample()]
        return self.objective.batch(positions, key=stream_key(self.seed, self.step))

    def _sample(self) -> Tensor:
        """Sample positions in the memory without replacement."""
        index = torch.randperm(self.positions[0].numel(), generator=self.generator)[: self.sample]
        return index.to(self.positions[0].device)


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
