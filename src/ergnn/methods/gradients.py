"""Gradients of all parameters as one vector, and constraints on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.step_hooks import StepHook


def flat_gradients(params: ParamDict, models: int = 1) -> Tensor:
    """Return the gradients of (stacked) parameters, ``[models, parameters]``."""
    return flatten_models([torch.zeros_like(p) if p.grad is None else p.grad for p in params.values()], models)


def flatten_models(values: Sequence[Tensor], models: int) -> Tensor:
    """Concatenate stacked tensors to one row per model."""
    return torch.cat([value.reshape(models, -1) for value in values], dim=1)


def set_gradients(params: ParamDict, matrix: Tensor) -> None:
    """Invert :func:`flat_gradients`."""
    columns = matrix.split([value.numel() // matrix.size(0) for value in params.values()], dim=1)
    for value, gradient in zip(params.values(), columns, strict=True):
        value.grad = gradient.reshape(value.shape).contiguous()  # fused optimizers ignore strides


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
        gradient = flat_gradients(params)[0]
        projected = self.projected(gradient, params)
        self.step += 1
        if projected is not gradient:
            set_gradients(params, projected.unsqueeze(0))

    @abstractmethod
    def projected(self, gradient: Tensor, params: ParamDict) -> Tensor:
        """Return the projected gradient; the same object if it needs no projection."""
