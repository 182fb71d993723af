"""PackNet: each task gets a part of the weights, which are then frozen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data.stream import Task
from ergnn.engine.losses import Objective
from ergnn.engine.step_hooks import StepHook
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView, num_bytes
from ergnn.methods.masks import MaskMethod, PruneAndFreeze, shared_parameters
from ergnn.nn.examples import Examples


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

    comparison = Comparison(search={"prune": (0.5, 0.75), "retrain": (0.3, 0.5)})

    def __init__(self, prune: float = 0.75, retrain: float = 0.3) -> None:
        for name, value in (("prune", prune), ("retrain", retrain)):
            if not 0.0 < value < 1.0:
                raise InputError(f"{name} is {value}; it must lie between 0 and 1")
        self.prune, self.retrain = prune, retrain
        self._owner: dict[str, Tensor] = {}

    @property
    def nbytes(self) -> int:
        """The task that owns each weight."""
        return num_bytes(self._owner.values())

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
