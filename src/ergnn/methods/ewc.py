"""Elastic weight consolidation (EWC): a quadratic penalty on parameters that are important for earlier tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ergnn.config.errors import InputError, check_at_least
from ergnn.data.stream import Task
from ergnn.engine.losses import Objective, ParamDict
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView
from ergnn.methods.importance import ImportanceMethod, sampled_objective
from ergnn.nn.examples import Examples

LAMBDAS = (0.3, 1.0, 3.0, 10.0, 30.0)
"""The default grid of :func:`search_lambda`."""


def fisher_diagonal(objective: Objective, params: ParamDict) -> ParamDict:
    """Compute ``F = 1/n Σ_i (∇ℓ_i)²``, the diagonal of the empirical Fisher information, with the true labels."""
    total = objective.gradient_sums(params)
    return {name: value.detach() / objective.targets.numel() for name, value in total.items()}


@METHODS.register("ewc", help="penalize changes of important parameters (elastic weight consolidation)")
class EWC(ImportanceMethod):
    """Finetuning with a quadratic penalty on each parameter, weighted by its Fisher information in earlier tasks.

    The penalties of all tasks are stored as two vectors, ΣF and ΣFθ*, so time and memory do not grow with the number
    of tasks (Kirkpatrick et al., 2017, with the sum over tasks as in their multi-task experiments). See
    :class:`~ergnn.methods.importance.QuadraticPenalty`.

    Args:
        lam: λ, weight of the penalty; :func:`search_lambda` can select it on validation nodes.
        fisher_samples: number of training nodes to sample per task to estimate F; by default all.
    """

    comparison = Comparison(search={"lam": (0.3, 3.0, 30.0, 300.0)}, importance_option="fisher_samples")

    def __init__(self, lam: float = 3.0, fisher_samples: int | None = None) -> None:
        check_at_least(1, fisher_samples=fisher_samples)
        super().__init__(lam, decay=None)
        self.fisher_samples = fisher_samples

    def importance(self, learner: LearnerView, task: Task, trained_on: Examples) -> ParamDict:
        objective = sampled_objective(learner, task, trained_on, self.fisher_samples)
        return objective.by_name(fisher_diagonal(objective, objective.parameters()))


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
