"""Synaptic intelligence (SI): a quadratic penalty on parameters that reduced the loss during training."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import torch

from ergnn.config.errors import InputError
from ergnn.data.stream import Task
from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.step_hooks import StepHook, join_hooks, split_models, stack_models
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView
from ergnn.methods.importance import ImportanceMethod
from ergnn.nn.examples import Examples


class PathIntegral(StepHook):
    """Accumulates ``ω_j = −Σ_steps g_j Δθ_j`` of the loss without the penalty, and applies the penalty.

    Args:
        objective: the objective of the task.
        penalty: the penalty of earlier tasks, if any.
    """

    def __init__(self, objective: Objective, penalty: StepHook | None) -> None:
        self.objective, self.penalty, self.start = objective, penalty, objective.parameters()
        self.recordable = penalty is None or penalty.recordable
        self.path = {name: torch.zeros_like(value) for name, value in self.start.items()}
        self._before: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    @classmethod
    def stacked(cls, hooks: Sequence[PathIntegral]) -> StepHook:
        together = copy(hooks[0])
        together.penalty = join_hooks([hook.penalty for hook in hooks])
        together.recordable = together.penalty is None or together.penalty.recordable
        together.path = stack_models([hook.path for hook in hooks])
        for hook, own in zip(hooks, split_models(together.path, len(hooks)), strict=True):
            hook.path = own  # views, which are read after the task
        return together

    def state_dict(self) -> ParamDict:
        return self.path

    def load_state_dict(self, state: ParamDict) -> None:
        self.path = dict(state)

    def before_step(self, params: ParamDict) -> None:
        self._before = {
            name: (value.detach().clone(), value.grad.clone())
            for name, value in params.items()
            if value.grad is not None
        }

    @torch.no_grad()
    def after_step(self, params: ParamDict, optimizer: torch.optim.Optimizer) -> None:
        if self.penalty is not None:
            self.penalty.after_step(params, optimizer)
        for name, (value, gradient) in self._before.items():
            self.path[name].sub_(gradient * (params[name].detach() - value))


@METHODS.register("si", help="penalize changes of parameters that reduced the loss (synaptic intelligence)")
class SI(ImportanceMethod):
    """Synaptic intelligence (Zenke et al., 2017).

    The penalty is ``λ/2 Σ_j Ω_j (θ_j − θ*_j)²`` around the parameters θ* after the latest task, with
    ``Ω_j ← Ω_j + max(ω_j, 0) / (Δ_j² + ξ)``: ω_j is the path integral of −gradient · step over the training of a task
    and Δ_j the total change of θ_j in it. (The paper's c is λ/2.) See
    :class:`~ergnn.methods.importance.QuadraticPenalty`.

    Args:
        lam: λ, the weight of the penalty.
        xi: ξ, which bounds the importance of parameters that hardly changed.
    """

    comparison = Comparison(search={"lam": (0.1, 1.0, 10.0, 100.0)})

    def __init__(self, lam: float = 1.0, xi: float = 0.1) -> None:
        if not 0.0 < xi < float("inf"):
            raise InputError(f"xi is {xi}; it must be above 0")
        super().__init__(lam, decay=1.0)
        self.xi = xi
        self._hook: PathIntegral | None = None

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        self._hook = PathIntegral(objective, super().step_hook(learner, task, objective))
        return self._hook

    def importance(self, learner: LearnerView, task: Task, trained_on: Examples) -> ParamDict:
        assert self._hook is not None
        hook, self._hook = self._hook, None
        end = hook.objective.parameters()
        return hook.objective.by_name(
            {
                name: path.clamp(min=0.0) / ((end[name] - hook.start[name]).square() + self.xi)
                for name, path in hook.path.items()
            }
        )
