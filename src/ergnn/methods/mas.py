"""Memory aware synapses (MAS): a quadratic penalty on parameters that the outputs are sensitive to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.data.stream import Task
from ergnn.engine.losses import MASKED, ParamDict
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView
from ergnn.methods.importance import ImportanceMethod, sampled_objective
from ergnn.nn.examples import Examples, pure_loss


@METHODS.register("mas", help="penalize changes of parameters that outputs are sensitive to (memory aware synapses)")
class MAS(ImportanceMethod):
    """Memory aware synapses (Aljundi et al., 2018); labels are not used for the importance.

    The penalty is ``λ/2 Σ_j Ω_j (θ_j − θ*_j)²`` around the parameters θ* after the latest task, with
    ``Ω ← Ω + mean_v |∂‖z_v‖²/∂θ|`` over the training nodes v of each task and their outputs z (those of the task's
    heads). See :class:`~ergnn.methods.importance.QuadraticPenalty`.

    Args:
        lam: λ, the weight of the penalty.
        samples: number of a task's training nodes, sampled by seed, to estimate Ω from; by default all.
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
