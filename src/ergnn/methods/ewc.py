"""Elastic weight consolidation (EWC): a quadratic penalty on parameters that are important for earlier tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ergnn.data.stream import Task
from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.objective import make_objective
from ergnn.errors import InputError
from ergnn.methods import METHODS
from ergnn.methods.base import LearnerView, Method
from ergnn.methods.memory import check_at_least
from ergnn.nn.examples import Examples
from ergnn.training import StepHook

LAMBDAS = (0.3, 1.0, 3.0, 10.0, 30.0)
"""The default grid of :func:`search_lambda`."""


def fisher_diagonal(objective: Objective, params: ParamDict) -> ParamDict:
    """Compute ``F = 1/n Σ_i (∇ℓ_i)²``, the diagonal of the empirical Fisher information, with the true labels."""
    total = objective.squared_gradients(params)
    return {name: value.detach() / objective.targets.numel() for name, value in total.items()}


class EWCPenalty(StepHook):
    """Apply the penalty ``λ/2 Σ_k Σ_j F_kj (θ_j − θ*_kj)²`` as an implicit (proximal) step after each optimizer step.

    If the optimizer has reached θ with step sizes s, the proximal step minimizes the penalty plus
    ``Σ_j (θ'_j − θ_j)² / 2 s_j``, which gives

        θ' = (θ + s λ ΣF θ*) / (1 + s λ ΣF) .

    An explicit step, as with :meth:`Method.penalty`, diverges if ``s λ ΣF > 2``, which happens after a few tasks. The
    proximal step never diverges. With SGD, s is the learning rate; with Adam, it is ``lr / (√v̂ + ε)`` per parameter.

    Args:
        lam: λ.
        fisher: ΣF, summed over tasks.
        pull: ΣFθ*.
    """

    def __init__(self, lam: float, fisher: ParamDict, pull: ParamDict) -> None:
        self.stiffness = {name: lam * value for name, value in fisher.items()}
        self.pull = {name: lam * value for name, value in pull.items()}

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


@METHODS.register("ewc", help="penalize changes of important parameters (elastic weight consolidation)")
class EWC(Method):
    """Finetuning with a quadratic penalty on each parameter, weighted by its Fisher information in earlier tasks.

    The penalties of all tasks are stored as two vectors, ΣF and ΣFθ*, so time and memory do not grow with the number
    of tasks (Kirkpatrick et al., 2017, with the sum over tasks as in their multi-task experiments).

    Args:
        lam: λ, weight of the penalty; :func:`search_lambda` can select it on validation nodes.
        fisher_samples: number of training nodes to sample per task to estimate F; by default all.
    """

    def __init__(self, lam: float = 3.0, fisher_samples: int | None = None) -> None:
        check_at_least(0, lam=lam)
        check_at_least(1, fisher_samples=fisher_samples)
        self.lam, self.fisher_samples = float(lam), fisher_samples
        self.fisher: ParamDict = {}
        self.pull: ParamDict = {}

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        own = learner.examples(task.graph, task.train, task.id)
        return own.weighted(1.0 / len(own))

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        if not self.fisher or self.lam == 0:
            return None
        return EWCPenalty(self.lam, objective.from_names(self.fisher), objective.from_names(self.pull))

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        assert learner.model is not None
        chosen = torch.arange(len(trained_on), device=trained_on.nodes.device)
        if self.fisher_samples is not None:
            generator = torch.Generator().manual_seed((learner.seed * 1_000_003 + task.id * 7919 + 31) % 2**63)
            chosen = torch.randperm(len(trained_on), generator=generator)[: self.fisher_samples].to(chosen.device)
        objective = make_objective([learner.model], [trained_on]).batch(chosen)
        params = objective.parameters()
        fisher = fisher_diagonal(objective, params)
        pull = {name: value * params[name] for name, value in fisher.items()}
        self.fisher = _add(self.fisher, objective.by_name(fisher))
        self.pull = _add(self.pull, objective.by_name(pull))
        return {"lam": self.lam, "fisher_trace": float(sum(float(value.sum()) for value in fisher.values()))}

    def state_dict(self) -> dict[str, Any]:
        return {"fisher": dict(self.fisher), "pull": dict(self.pull)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.fisher, self.pull = dict(state["fisher"]), dict(state["pull"])


def _add(total: ParamDict, more: ParamDict) -> ParamDict:
    """Return the entry-wise sum; a new output layer starts from 0."""
    summed = {name: total[name] + value if name in total else value.clone() for name, value in more.items()}
    return {**total, **summed}


@dataclass(frozen=True)
class LambdaSearch:
    """Result of :func:`search_lambda`: the best λ, and the mean final validation accuracy of each λ."""

    lam: float
    accuracy: dict[float, float]


class Observer(LearnerView, Protocol):
    """A learner that can observe tasks."""

    def observe(self, task: Task) -> Any: ...


def search_lambda(
    make_learner: Callable[[float], Observer], streams: Sequence[Iterable[Task]], lambdas: Sequence[float] = LAMBDAS
) -> LambdaSearch:
    """Choose λ by the accuracy on the validation nodes of all tasks after the last task; test nodes are not used.

    Args:
        make_learner: creates a new learner with ``method="ewc"`` and the given λ.
        streams: streams of one or more seeds, different from those used to report results.
        lambdas: the grid; ties are resolved in favor of the smaller λ.
    """
    accuracy = {}
    for lam in sorted(lambdas):
        scores = []
        for stream in streams:
            learner = make_learner(lam)
            for task in stream:
                learner.observe(task)
            scores += [learner.evaluate(task, split="val") for task in stream]
        accuracy[lam] = sum(scores) / len(scores)
    if not accuracy:
        raise InputError("lambdas is empty; search_lambda needs at least one λ to try")
    return LambdaSearch(max(accuracy, key=lambda lam: accuracy[lam]), accuracy)
