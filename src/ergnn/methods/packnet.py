"""PackNet: each task gets a part of the weights, which are then frozen."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ergnn.data.stream import Task
from ergnn.engine.losses import Objective, ParamDict
from ergnn.errors import InputError
from ergnn.methods import METHODS
from ergnn.methods.base import LearnerView
from ergnn.methods.masks import MaskMethod, shared_parameters
from ergnn.nn.examples import Examples
from ergnn.step_hooks import StepHook


class PruneAndFreeze(StepHook):
    """Keeps frozen parameters, and after some steps prunes the smallest of the free weights.

    Args:
        objective: the objective of the task.
        frozen, free: parameters that keep their values, and weights to be pruned; 0 or 1, by name.
        prune_at: number of the step after which weights are pruned.
        prune: fraction of the free weights of each layer to prune.
    """

    def __init__(self, objective: Objective, frozen: ParamDict, free: ParamDict, prune_at: int, prune: float) -> None:
        self.frozen, self.free = (
            {name: value.bool() for name, value in objective.from_names(masks).items()} for masks in (frozen, free)
        )
        start = objective.parameters()
        self.held = {name: torch.where(mask, start[name], 0.0) for name, mask in self.frozen.items()}
        self.prune_at, self.prune, self.steps = prune_at, prune, 0

    def skip(self, steps: int) -> None:
        self.steps = steps

    def state_dict(self) -> ParamDict:
        return self.frozen

    def load_state_dict(self, state: ParamDict) -> None:
        self.frozen = dict(state)

    @torch.no_grad()
    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        self.steps += 1
        for name, value in params.items():
            if self.steps == self.prune_at:
                self.frozen[name] = self.frozen[name] | (self.free[name] & ~self._largest(value, self.free[name]))
            value.copy_(torch.where(self.frozen[name], self.held[name], value))

    def _largest(self, value: Tensor, free: Tensor) -> Tensor:
        """The free weights to keep: the largest in magnitude, and never a 0."""
        size = torch.where(free, value.abs(), -1.0).flatten()
        kept = size.topk(math.ceil((1.0 - self.prune) * int(free.sum()))).indices
        return torch.zeros_like(free).flatten().index_fill(0, kept, True).view_as(free) & (value != 0)


@METHODS.register("packnet", help="train, prune, retrain and freeze a part of the weights for each task (PackNet)")
class PackNet(MaskMethod):
    """PackNet (Mallya and Lazebnik, 2018): earlier tasks' outputs never change; the task must be known.

    A task trains the weights that are still free, together with those of earlier tasks, which are frozen. Then the
    fraction ``prune`` of the free weights of each layer, the smallest in magnitude, is set to 0, and the others are
    trained further and frozen. Nodes of task t are predicted with the weights of tasks 1 to t.

    Args:
        prune: fraction of the free weights that a task leaves to later tasks (0.5 to 0.75 in the paper).
        retrain: fraction of a task's epochs that follow pruning (a third in the paper).
    """

    search = {"prune": (0.5, 0.75), "retrain": (0.3, 0.5)}

    def __init__(self, prune: float = 0.75, retrain: float = 0.3) -> None:
        for name, value in (("prune", prune), ("retrain", retrain)):
            if not 0.0 < value < 1.0:
                raise InputError(f"{name} is {value}; it must lie between 0 and 1")
        self.prune, self.retrain = prune, retrain
        self._owner: dict[str, Tensor] = {}

    @property
    def nbytes(self) -> int:
        """The task that owns each weight."""
        return sum(value.numel() * value.element_size() for value in self._owner.values())

    def mask(self, task: int) -> dict[str, Tensor]:
        return {name: (owner > 0) & (owner <= task + 1) for name, owner in self._owner.items()}

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        weights, biases = shared_parameters(learner)
        free = {name: self._owners(name, value) == 0 for name, value in weights.items()}
        frozen = {name: ~mask for name, mask in free.items()}
        frozen |= {name: torch.ones_like(value, dtype=torch.bool) for name, value in biases.items() if task.id}
        size = learner.training.batch_size or task.train.numel()
        steps = learner.training.epochs * -(-task.train.numel() // size)
        return PruneAndFreeze(objective, frozen, free, max(1, steps - int(self.retrain * steps)), self.prune)

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        weights, _ = shared_parameters(learner)
        for name, value in weights.items():
            owner = self._owners(name, value)
            self._owner[name] = torch.where((owner == 0) & (value != 0), task.id + 1, owner).to(owner.dtype)
        free = sum(int((owner == 0).sum()) for owner in self._owner.values())
        return {"free": free / sum(value.numel() for value in weights.values())}

    def _owners(self, name: str, value: Tensor) -> Tensor:
        """The task (from 1) that owns each weight; 0 is free."""
        return self._owner[name] if name in self._owner else torch.zeros_like(value, dtype=torch.int16)

    def state_dict(self) -> dict[str, Any]:
        return {"owner": dict(self._owner)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._owner = dict(state["owner"])
