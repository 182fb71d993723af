"""The training steps of PackNet: frozen parameters, and weights that are pruned after some steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.step_hooks import StepHook, split_models, stack_models


class PruneAndFreeze(StepHook):
    """Keeps frozen parameters, and after some steps prunes the smallest of the free weights.

    Args:
        objective: the objective of the task.
        frozen, free: parameters that keep their values, and weights to be pruned; 0 or 1, by name.
        prune_at: number of the step after which weights are pruned.
        prune: fraction of the free weights of each layer to prune.
    """

    recordable = True

    def __init__(self, objective: Objective, frozen: ParamDict, free: ParamDict, prune_at: int, prune: float) -> None:
        self.frozen, self.free = (
            {name: value.bool() for name, value in objective.from_names(masks).items()} for masks in (frozen, free)
        )
        start = objective.parameters()
        self.held = {name: torch.where(mask, start[name], 0.0) for name, mask in self.frozen.items()}
        self.prune_at, self.prune, self.steps = prune_at, prune, 0
        self._parts: Sequence[PruneAndFreeze] = ()

    @classmethod
    def stacked(cls, hooks: Sequence[PruneAndFreeze]) -> StepHook:
        together = copy(hooks[0])
        together._parts = hooks
        together.frozen, together.held = (stack_models([getattr(h, key) for h in hooks]) for key in ("frozen", "held"))
        for hook, own in zip(hooks, split_models(together.frozen, len(hooks)), strict=True):
            hook.frozen = own  # views, which pruning changes
        return together

    def skip(self, steps: int) -> None:
        self.steps = steps

    def state_dict(self) -> ParamDict:
        return self.frozen

    def load_state_dict(self, state: ParamDict) -> None:
        self.frozen = dict(state)

    @torch.no_grad()
    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        for name, value in params.items():
            value.copy_(torch.where(self.frozen[name], self.held[name], value))

    @torch.no_grad()
    def between_steps(self, params: ParamDict) -> None:
        if self._parts:
            for part, own in zip(self._parts, split_models(params, len(self._parts)), strict=True):
                part.between_steps(own)
            return
        self.steps += 1
        if self.steps == self.prune_at:
            for name, value in params.items():
                pruned = self.free[name] & ~self._largest(value, self.free[name])
                self.frozen[name].logical_or_(pruned)  # the value held is 0
                value.masked_fill_(pruned, 0.0)

    def _largest(self, value: Tensor, free: Tensor) -> Tensor:
        """The free weights to keep: the largest in magnitude, and never a 0."""
        size = torch.where(free, value.abs(), -1.0).flatten()
        kept = size.topk(math.ceil((1.0 - self.prune) * int(free.sum()))).indices
        return torch.zeros_like(free).flatten().index_fill(0, kept, True).view_as(free) & (value != 0)
