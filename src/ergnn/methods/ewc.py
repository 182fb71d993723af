"""Elastic weight consolidation (EWC): a quadratic penalty on parameters that are important for earlier tasks."""

from __future__ import annotations

from ergnn.config.errors import check_at_least
from ergnn.data.stream import Task
from ergnn.engine.losses import Objective, ParamDict
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView
from ergnn.methods.importance import ImportanceMethod, sampled_objective
from ergnn.nn.examples import Examples


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
        lam: λ, weight of the penalty.
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
