"""Base class of methods that penalize changes of important parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.data.stream import Task
from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.objective import make_objective
from ergnn.engine.step_hooks import StepHook, stack_models
from ergnn.methods.base import LearnerView, Method, num_bytes
from ergnn.nn.examples import Examples


class QuadraticPenalty(StepHook):
    """Apply the penalty ``λ/2 Σ_k Σ_j Ω_kj (θ_j − θ*_kj)²`` as an implicit (proximal) step after each optimizer step.

    If the optimizer has reached θ with step sizes s, the proximal step minimizes the penalty plus
    ``Σ_j (θ'_j − θ_j)² / 2 s_j``, which gives

        θ' = (θ + s λ ΣΩ θ*) / (1 + s λ ΣΩ) .

    An explicit step, as with :meth:`Method.penalty`, diverges if ``s λ ΣΩ > 2``, which happens after a few tasks. The
    proximal step never diverges. With SGD, s is the learning rate; with Adam, it is ``lr / (√v̂ + ε)`` per parameter.

    Args:
        lam: λ.
        importance: ΣΩ, summed over tasks.
        pull: ΣΩθ*.
    """

    recordable = True

    def __init__(self, lam: float, importance: ParamDict, pull: ParamDict) -> None:
        self.stiffness = {name: lam * value for name, value in importance.items()}
        self.pull = {name: lam * value for name, value in pull.items()}

    @classmethod
    def stacked(cls, hooks: Sequence[QuadraticPenalty]) -> StepHook:
        return cls(1.0, stack_models([hook.stiffness for hook in hooks]), stack_models([hook.pull for hook in hooks]))

    @torch.no_grad()
    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        for name, value in params.items():
            size = step_size(optimizer, value)
            value.add_(size * self.pull[name]).div_(1.0 + size * self.stiffness[name])


def step_size(optimizer: torch.optim.Optimizer, value: Tensor) -> Tensor | float:
    """Return the step size of a parameter: the learning rate, divided by ``√v̂ + ε`` for Adam."""
    group = optimizer.param_groups[0]
    state = optimizer.state.get(value, {})
    if "exp_avg_sq" not in state:
        return float(group["lr"])
    debiased = state["exp_avg_sq"] / (1.0 - group["betas"][1] ** state["step"])
    return group["lr"] / (debiased.sqrt() + group["eps"])


class ImportanceMethod(Method, ABC):
    """Finetuning with a quadratic penalty on each parameter, weighted by its importance Ω in earlier tasks.

    Two vectors are stored, ΣΩ and ΣΩθ*, so that time and memory do not grow with the number of tasks.

    Args:
        lam: λ, weight of the penalty.
        decay: with a number γ, one penalty ``λ/2 Σ_j Ω_j (θ_j − θ*_j)²`` with ``Ω ← γΩ + Ω_t`` and the parameters θ*
            after the latest task; with None, one penalty per task, each with its own θ*.
    """

    def __init__(self, lam: float, decay: float | None) -> None:
        check_at_least(0, lam=lam)
        self.lam, self.decay = float(lam), decay
        self.total: ParamDict = {}
        self.pull: ParamDict = {}

    @property
    def nbytes(self) -> int:
        """Size of ΣΩ and ΣΩθ*."""
        return num_bytes([*self.total.values(), *self.pull.values()])

    @abstractmethod
    def importance(self, learner: LearnerView, task: Task, trained_on: Examples) -> ParamDict:
        """Return Ω of the task that has just been learned, by the model's names of parameters, 0 or more."""

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        if not self.total or self.lam == 0:
            return None
        return QuadraticPenalty(self.lam, objective.from_names(self.total), objective.from_names(self.pull))

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        assert learner.model is not None
        new = self.importance(learner, task, trained_on)
        for name, value in new.items():
            anchor, before = learner.model.get_parameter(name).detach(), self.total.get(name)
            if self.decay is None:
                self.total[name] = value.clone() if before is None else before + value
                self.pull[name] = value * anchor + self.pull.get(name, 0.0)
            else:
                self.total[name] = value.clone() if before is None else self.decay * before + value
                self.pull[name] = self.total[name] * anchor
        return {"lam": self.lam, "importance": float(sum(float(value.sum()) for value in new.values()))}

    def state_dict(self) -> dict[str, Any]:
        return {"importance": dict(self.total), "pull": dict(self.pull)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total, self.pull = dict(state["importance"]), dict(state["pull"])


def sampled_objective(learner: LearnerView, task: Task, examples: Examples, count: int | None) -> Objective:
    """Return the objective of ``count`` examples, sampled by seed; of all if None."""
    assert learner.model is not None
    heads = torch.unique(examples.heads).tolist()
    if count is not None:
        chosen = torch.randperm(len(examples), generator=task.generator(learner.seed, 31))[:count]
        examples = examples[chosen.to(examples.nodes.device)]
    return make_objective([learner.model], [examples], heads, lazy=True)
