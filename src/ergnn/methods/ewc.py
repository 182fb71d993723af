"""Elastic weight consolidation (EWC): parameters that earlier tasks lean on are held by springs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ergnn.data.stream import Task
from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.objective import make_objective
from ergnn.errors import InputError
from ergnn.methods import METHODS
from ergnn.methods.base import Method
from ergnn.nn.examples import Examples
from ergnn.training import Guide

if TYPE_CHECKING:
    from ergnn.learner import Learner

LAMBDAS = (0.3, 1.0, 3.0, 10.0, 30.0)
"""Where :func:`search_lambda` looks by default."""


def fisher_diagonal(objective: Objective, params: ParamDict) -> ParamDict:
    """``F = 1/n Σ_i (∇ℓ_i)²``: the empirical Fisher information's diagonal, with the true labels."""
    total = objective.squared_gradients(params)
    return {name: value.detach() / objective.targets.numel() for name, value in total.items()}


class Springs(Guide):
    """The penalty ``λ/2 Σ_k Σ_j F_kj (θ_j − θ*_kj)²`` as an implicit (proximal) step after each step of the optimiser.

    Where the optimiser has come to θ with step sizes s, the step goes to the minimum of the penalty plus
    ``Σ_j (θ'_j − θ_j)² / 2 s_j``, which is

        θ' = (θ + s λ ΣF θ*) / (1 + s λ ΣF) .

    An explicit step diverges where ``s λ ΣF > 2``, as it is after a few tasks; this one never does. With SGD s is the
    learning rate, with Adam each parameter's own, ``lr / (√v̂ + ε)``: the metric that Adam itself steps in.

    Args:
        lam: λ.
        fisher: ΣF, sum over tasks.
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
    """What the optimiser multiplies a gradient with: the learning rate, for Adam divided by ``√v̂ + ε``."""
    group = optimizer.param_groups[0]
    state = optimizer.state.get(value, {})
    if "exp_avg_sq" not in state:
        return float(group["lr"])
    debiased = state["exp_avg_sq"] / (1.0 - group["betas"][1] ** state["step"])
    return group["lr"] / (debiased.sqrt() + group["eps"])


@METHODS.register("ewc", help="parameters that earlier tasks lean on are held back (elastic weight consolidation)")
class EWC(Method):
    """Finetuning with a spring on each parameter, as stiff as its Fisher information in all earlier tasks.

    The sum of all tasks' penalties is kept as two vectors, ΣF and ΣFθ*, so that neither time nor memory grows with
    the tasks (Kirkpatrick et al., 2017, with the sum over tasks as in their multi-task experiments).

    Args:
        lam: λ; see :func:`search_lambda`.
        fisher_samples: how many of a task's training nodes, drawn by seed, F is the mean over; by default all.
    """

    guided = True

    def __init__(self, lam: float = 3.0, fisher_samples: int | None = None) -> None:
        if not lam >= 0:
            raise InputError(f"lam (λ) is {lam}; it must be 0 or more")
        if fisher_samples is not None and fisher_samples < 1:
            raise InputError(f"fisher_samples is {fisher_samples}; it must be 1 or more")
        self.lam, self.fisher_samples = float(lam), fisher_samples
        self.fisher: ParamDict = {}
        self.pull: ParamDict = {}

    def examples(self, learner: Learner, task: Task, number: int) -> Examples:
        own = learner.examples(task.graph, task.train, number)
        return own.weighted(1.0 / len(own))

    def guide(self, learner: Learner, task: Task, objective: Objective) -> Guide | None:
        if not self.fisher or self.lam == 0:
            return None
        return Springs(self.lam, objective.from_names(self.fisher), objective.from_names(self.pull))

    def after_task(self, learner: Learner, task: Task, number: int, trained_on: Examples) -> dict[str, Any]:
        assert learner.model is not None
        chosen = torch.arange(len(trained_on), device=trained_on.nodes.device)
        if self.fisher_samples is not None:
            generator = torch.Generator().manual_seed((learner.seed * 1_000_003 + number * 7919 + 31) % 2**63)
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
    """A new sum, entry by entry; an output layer that is new starts from 0."""
    summed = {name: total[name] + value if name in total else value.clone() for name, value in more.items()}
    return {**total, **summed}


@dataclass(frozen=True)
class LambdaSearch:
    """The λ with the highest mean validation accuracy at the end of the streams, and that of every λ tried."""

    lam: float
    accuracy: dict[float, float]


def search_lambda(
    make_learner: Callable[[float], Learner], streams: Sequence[Iterable[Task]], lambdas: Sequence[float] = LAMBDAS
) -> LambdaSearch:
    """Choose λ by the accuracy on all tasks' validation nodes after the last task; test nodes have no say.

    Args:
        make_learner: a new learner with ``method="ewc"`` and the λ it is given.
        streams: of one seed or of several; seeds that the results are shown for should not be among them.
        lambdas: the grid; ties go to the smaller one.
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
        raise InputError("search_lambda was given no λ to try")
    return LambdaSearch(max(accuracy, key=lambda lam: accuracy[lam]), accuracy)
