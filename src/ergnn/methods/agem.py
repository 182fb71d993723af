"""Averaged gradient episodic memory (A-GEM): no step may raise the memory's mean loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ergnn.data.stream import Task
from ergnn.engine.losses import Objective, ParamDict
from ergnn.errors import InputError
from ergnn.methods import METHODS
from ergnn.methods.gem import EpisodicMemory, flat_gradient, mean_gradient, set_gradient
from ergnn.training import Guide

if TYPE_CHECKING:
    from ergnn.learner import Learner


def project_on_average(gradient: Tensor, reference: Tensor) -> Tensor:
    """``g − (gᵀr / rᵀr) r`` where ``gᵀr < 0``, else g: the vector nearest to g with no negative product with r."""
    product = gradient @ reference
    if float(product) >= 0:
        return gradient
    return gradient - (product / (reference @ reference)) * reference


class AverageConstraint(Guide):
    """A-GEM's step.

    Args:
        memory: all remembered examples.
        sample: how many of them, drawn for each step, the reference gradient is the mean over.
        seed: of the draws.
    """

    def __init__(self, memory: Objective, sample: int, seed: int) -> None:
        self.memory, self.sample = memory, sample
        self.generator = torch.Generator().manual_seed(seed % 2**63)

    def skip(self, steps: int) -> None:
        for _ in range(steps):
            self._draw()

    def before_step(self, params: ParamDict) -> None:
        memory = self.memory
        if self.sample < memory.targets.numel():
            memory = memory.batch(self._draw().to(memory.targets.device))
        gradient = flat_gradient(params)
        projected = project_on_average(gradient, mean_gradient(memory, params))
        if projected is not gradient:
            set_gradient(params, projected)

    def _draw(self) -> Tensor:
        return torch.randperm(self.memory.targets.numel(), generator=self.generator)[: self.sample]


@METHODS.register("agem", aliases=("a-gem",), help="no step may raise the memory's mean loss (averaged GEM)")
class AGEM(EpisodicMemory):
    """Averaged gradient episodic memory (Chaudhry et al., 2019): one constraint in place of one a task.

    Args:
        sample: how many remembered nodes, drawn for each step, the constraint is made of (256 as in the paper's
            experiments); a smaller memory is used whole.
        per_class, choose, replay, hops: see :class:`EpisodicMemory`.
    """

    def __init__(
        self, per_class: int = 1, sample: int = 256, choose: str = "random", replay: str = "live", hops: int = 2
    ) -> None:
        if sample < 1:
            raise InputError(f"sample is {sample}; it must be 1 or more")
        super().__init__(per_class, choose, replay, hops)
        self.sample = sample

    def constraint(self, objective: Objective, memories: Sequence[Tensor], learner: Learner, task: Task) -> Guide:
        seed = learner.seed * 1_000_003 + task.id * 7919 + 47
        return AverageConstraint(objective.batch(torch.cat(list(memories))), self.sample, seed)
