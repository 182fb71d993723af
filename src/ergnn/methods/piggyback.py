"""Piggyback: a learned binary mask per task over a fixed network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data.stream import Task
from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.step_hooks import StepHook
from ergnn.methods import METHODS
from ergnn.methods.base import LearnerView
from ergnn.methods.masks import MaskMethod, shared_parameters
from ergnn.nn.examples import Examples


class MaskTraining(StepHook):
    """Lets the optimizer train real-valued masks m in place of the weights W.

    The loss is computed with ``W 1[m > τ]``. The gradient passes the threshold unchanged (straight-through):
    ``∂ℓ/∂m = W ∂ℓ/∂(W 1[m > τ])``. Masks are not decayed; the gradient cancels a coupled weight decay.

    Args:
        objective: the objective of the task.
        masked, frozen: weights with a mask, and parameters that keep their values; 0 or 1, by name.
        init, threshold: initial value of m, and τ.
        l2: coupled weight decay of the optimizer.
    """

    recordable = True

    def __init__(
        self, objective: Objective, masked: ParamDict, frozen: ParamDict, init: float, threshold: float, l2: float
    ) -> None:
        self.objective, self.threshold, self.l2 = objective, threshold, l2
        self.fixed = objective.parameters()
        has_mask, held = ({k: bool(v.any()) for k, v in objective.from_names(d).items()} for d in (masked, frozen))
        self.real = {name: torch.full_like(value, init) for name, value in self.fixed.items() if has_mask[name]}
        self.held = [name for name in self.fixed if held[name]]

    def state_dict(self) -> ParamDict:
        return self.real

    def load_state_dict(self, state: ParamDict) -> None:
        self.real = dict(state)

    @torch.no_grad()
    def before_step(self, params: ParamDict) -> None:
        for name, real in self.real.items():
            gradient = params[name].grad
            if gradient is not None:
                gradient.mul_(self.fixed[name]).sub_(real, alpha=self.l2)
            params[name].copy_(real)

    @torch.no_grad()
    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        for name in self.real:
            self.real[name].copy_(params[name])
            params[name].copy_(torch.where(self.real[name] > self.threshold, self.fixed[name], 0.0))
        for name in self.held:
            params[name].copy_(self.fixed[name])


@METHODS.register("piggyback", help="learn a binary mask per task over the network of the first task (Piggyback)")
class Piggyback(MaskMethod):
    """Piggyback (Mallya et al., 2018): earlier tasks' outputs never change; the task must be known.

    The first task trains the network, which is then fixed. Every later task t learns which weights it uses,
    ``W 1[m_t > τ]``, by gradients of the real-valued masks m_t (see :class:`MaskTraining`), and its own output layer.

    Args:
        init: initial value of masks. With Adam, only ``init − threshold`` relative to the learning rate matters: the
            paper's 0.01 − 0.005 is 50 steps at its learning rate 1e-4, the default is 50 steps at 0.01.
        threshold: τ.
    """

    def __init__(self, init: float = 1.0, threshold: float = 0.5) -> None:
        if not 0.0 <= threshold < init < float("inf"):
            raise InputError(f"threshold is {threshold} and init is {init}; 0 <= threshold < init is required")
        self.init, self.threshold = float(init), float(threshold)
        self._masks: list[dict[str, Tensor]] = []
        self._hook: MaskTraining | None = None

    @property
    def nbytes(self) -> int:
        """The masks, one byte per weight."""
        return sum(mask.numel() for masks in self._masks for mask in masks.values())

    def mask(self, task: int) -> dict[str, Tensor]:
        return self._masks[task] if task < len(self._masks) else {}

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        self._hook = None
        if task.id:
            weights, biases = ({k: torch.ones_like(v) for k, v in part.items()} for part in shared_parameters(learner))
            self._hook = MaskTraining(objective, weights, biases, self.init, self.threshold, learner.training.l2)
        return self._hook

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        hook, self._hook = self._hook, None
        if hook is None:  # the first task, which uses all weights
            self._masks.append({})
            return {"used": 1.0}
        trained = hook.objective.parameters()
        hook.objective.write_back({name: hook.fixed[name] if name in hook.real else v for name, v in trained.items()})
        used = {name: real > self.threshold for name, real in hook.real.items()}
        by_name = hook.objective.by_name({name: used.get(name, value) for name, value in trained.items()})
        weights, _ = shared_parameters(learner)
        self._masks.append({name: by_name[name].clone() for name in weights})
        return {"used": float(torch.cat([mask.flatten() for mask in used.values()]).float().mean())}

    def state_dict(self) -> dict[str, Any]:
        return {"masks": [dict(masks) for masks in self._masks]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._masks = [dict(masks) for masks in state["masks"]]
