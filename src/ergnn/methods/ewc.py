"""Elastic weight consolidation (EWC, online EWC) and memory aware synapses (MAS): penalties on important parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ergnn.config.errors import InputError, check_at_least
from ergnn.data.stream import Task
from ergnn.engine.losses import MASKED, Objective, ParamDict
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView
from ergnn.methods.importance import ImportanceMethod, sampled_objective
from ergnn.nn.examples import Examples, pure_loss


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


@METHODS.register("online-ewc", help="EWC with one penalty at the latest parameters and decaying importance")
class OnlineEWC(EWC):
    """Online elastic weight consolidation (Schwarz et al., 2018).

    After task t, ``F ← γF + F_t``, and the penalty of the next task is ``λ/2 Σ_j F_j (θ_j − θ*_j)²`` around the
    parameters θ* after task t, whereas :class:`EWC` keeps the parameters after every task.

    Args:
        gamma: γ, the factor of earlier Fisher information after each task, 0 to 1.
    """

    comparison = replace(EWC.comparison, search={**EWC.comparison.search, "gamma": (0.5, 0.95)})

    def __init__(self, lam: float = 3.0, gamma: float = 0.95, fisher_samples: int | None = None) -> None:
        if not 0.0 <= gamma <= 1.0:
            raise InputError(f"gamma is {gamma}; it must be 0 to 1")
        super().__init__(lam, fisher_samples)
        self.decay = float(gamma)


@METHODS.register("mas", help="penalize changes of parameters that outputs are sensitive to (memory aware synapses)")
class MAS(ImportanceMethod):
    """Memory aware synapses (Aljundi et al., 2018); labels are not used for the importance.

    The penalty is ``λ/2 Σ_j Ω_j (θ_j − θ*_j)²`` around the parameters θ* after the latest task, with
    ``Ω ← Ω + mean_v |∂‖z_v‖²/∂θ|`` over the training nodes v of each task and their outputs z (those of the task's
    heads).

    Args:
        samples: number of training nodes to sample per task to estimate Ω; by default all.
    """

    comparison = Comparison(search={"lam": (0.01, 0.1, 1.0, 10.0)}, importance_option="samples")

    def __init__(self, lam: float = 1.0, samples: int | None = None) -> None:
        check_at_least(1, samples=samples)
        super().__init__(lam, decay=1.0)
        self.samples = samples

    def importance(self, learner: LearnerView, task: Task, trained_on: Examples) -> ParamDict:
        objective = sampled_objective(learner, task, replace(trained_on, loss=squared_norm), self.samples)
        total = objective.by_name(objective.gradient_sums(objective.parameters(), torch.abs))
        return {name: value / objective.targets.numel() for name, value in total.items()}


@pure_loss()
def squared_norm(logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
    """``‖z‖²`` of each example, over the outputs that its heads have."""
    return torch.where(logits == MASKED, 0.0, logits).square().sum(1)
