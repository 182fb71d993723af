"""Gradients of all parameters as one vector, and constraints on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.step_hooks import StepHook


def flat_gradient(params: ParamDict) -> Tensor:
    """Concatenate the gradients of all parameters into one vector."""
    return torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in params.values()])


def set_gradient(params: ParamDict, vector: Tensor) -> None:
    parts = vector.split([value.numel() for value in params.values()])
    for value, part in zip(params.values(), parts, strict=True):
        value.grad = part.view_as(value)


def mean_gradient(objective: Objective, params: ParamDict, out: Tensor | None = None) -> Tensor:
    """Compute the gradient of the mean loss in evaluation mode as one vector (written to ``out`` if given)."""
    grads = torch.autograd.grad(objective.losses(params).mean(), list(params.values()), allow_unused=True)
    pairs = zip(grads, params.values(), strict=True)
    parts = [(torch.zeros_like(value) if grad is None else grad).flatten() for grad, value in pairs]
    return torch.cat(parts) if out is None else torch.cat(parts, out=out)


class GradientConstraint(StepHook, ABC):
    """Step hook that projects the gradient before each step.

    Args:
        objective: objective of the task.
        memories: positions of each set of remembered examples in the objective.
        seed: seed for sampling neighbors at each step, if the batches of the task sample neighbors.
    """

    def __init__(self, objective: Objective, memories: Sequence[Tensor], seed: int) -> None:
        self.objective, self.positions, self.seed, self.step = objective, list(memories), seed, 0
        self.sampled = objective.sampling is not None
        self.memories = [] if self.sampled else [objective.batch(positions) for positions in memories]

    def skip(self, steps: int) -> None:
        self.step += steps

    def before_step(self, params: ParamDict) -> None:
        gradient = flat_gradient(params)
        projected = self.projected(gradient, params)
        self.step += 1
        if projected is not gradient:
            set_gradient(params, projected)

    @abstractmethod
    def projected(self, gradient: Tensor, params: ParamDict) -> Tensor:
        """Return the projected gradient; the same object if it needs no projection."""
