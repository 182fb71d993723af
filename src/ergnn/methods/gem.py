"""Gradient episodic memory (GEM): no step may increase the loss of an earlier task's memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
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


def nonnegative_minimum(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Minimize ``½ vᵀPv + qᵀv`` over v ≥ 0 exactly, for a positive semi-definite P with q in its range.

    Active-set method (Bro and De Jong, 1997); at the minimum, ``Pv + q ≥ 0``, and ``= 0`` where v > 0.
    """
    v, free = np.zeros_like(q), np.zeros(len(q), dtype=bool)
    for _ in range(10 * len(q) + 10):
        slope = np.where(free, np.inf, p @ v + q)
        if not len(q) or slope.min() >= -1e-10 * np.abs(q).max():
            return v
        free[slope.argmin()] = True
        while free.any():
            trial = np.zeros_like(v)
            trial[free] = np.linalg.lstsq(p[np.ix_(free, free)], -q[free], rcond=None)[0]
            blocked = free & (trial <= 0)
            if not blocked.any():
                break
            step = (v[blocked] / (v[blocked] - trial[blocked] + 1e-300)).min()
            v = v + step * (trial - v)
            free &= v > 1e-14 * np.abs(v).max(initial=0.0)
            v[~free] = 0.0
        v = np.where(free, trial, 0.0)
    return v


def project(gradient: Tensor, memories: Tensor, margin: float = 0.0) -> Tensor:
    """Return the vector closest to ``gradient`` with nonnegative products with all rows of ``memories``.

    With g the gradient and G the memories, the dual of ``min ½‖z − g‖² s.t. Gz ≥ 0`` has one variable per task:

        min_{v ≥ γ} ½ vᵀGGᵀv + gᵀGᵀv,    z = Gᵀv + g .

    γ is the margin, a lower bound of v as in the authors' code; ``Gz ≥ 0`` still holds. A feasible g is not changed.
    """
    products = memories @ gradient
    if bool((products >= 0).all()):
        return gradient
    gram = (memories @ memories.T).double().cpu().numpy()
    v = margin + nonnegative_minimum(gram, products.double().cpu().numpy() + margin * gram.sum(1))
    return gradient + torch.from_numpy(v).to(gradient) @ memories


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

    def projected(self, gradient: Tensor, params: ParamDict) -> Tensor:
        if self._rows is None:  # one tensor for all steps
            self._rows = gradient.new_empty(len(self.positions), gradient.numel())
        for i, row in enumerate(self._rows):
            key = stream_key(self.seed, self.step, i)  # samples the memory's neighbors
            memory = self.objective.batch(self.positions[i], key=key) if self.sampled else self.memories[i]
            mean_gradient(memory, params, out=row)
        return project(gradient, self._rows, self.margin)


@METHODS.register("gem", help="no step may increase the loss of an earlier task's memory (gradient episodic memory)")
class GEM(EpisodicMemory):
    """Gradient episodic memory (Lopez-Paz and Ranzato, 2017), its quadratic program solved exactly at each step.

    Args:
        margin: γ, lower bound of the dual variables, 0 or more; the paper's experiments use 0.5.
    """

    search = {"margin": (0.0, 0.5)}

    def __init__(
        self,
        per_class: int = 1,
        margin: float = 0.0,
        choose: Choose = "random",
        replay: ReplayMode = "live",
        hops: int = 2,
        scarce: Scarce = "error",
    ) -> None:
        check_at_least(0, margin=margin)
        super().__init__(per_class, choose, replay, hops, scarce)
        self.margin = float(margin)

    def constraint(self, objective: Objective, memories: Sequence[Tensor], seed: int) -> StepHook:
        return GEMProjection(objective, memories, self.margin, seed)
