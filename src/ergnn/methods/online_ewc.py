"""Online EWC: one quadratic penalty at the latest parameters, with decaying Fisher information."""

from __future__ import annotations

from dataclasses import replace

from ergnn.config.errors import InputError
from ergnn.methods import METHODS
from ergnn.methods.ewc import EWC


@METHODS.register("online-ewc", help="EWC with one penalty at the latest parameters and decaying importance")
class OnlineEWC(EWC):
    """Online elastic weight consolidation (Schwarz et al., 2018).

    After task t, ``F ← γF + F_t``, and the penalty of the next task is ``λ/2 Σ_j F_j (θ_j − θ*_j)²`` around the
    parameters θ* after task t, whereas :class:`~ergnn.methods.ewc.EWC` keeps the parameters after every task.

    Args:
        lam: λ, the weight of the penalty.
        gamma: γ, the factor of earlier Fisher information after each task, 0 to 1.
        fisher_samples: number of a task's training nodes, sampled by seed, to estimate F from; by default all.
    """

    comparison = replace(EWC.comparison, search={**EWC.comparison.search, "gamma": (0.5, 0.95)})

    def __init__(self, lam: float = 3.0, gamma: float = 0.95, fisher_samples: int | None = None) -> None:
        if not 0.0 <= gamma <= 1.0:
            raise InputError(f"gamma is {gamma}; it must be 0 to 1")
        super().__init__(lam, fisher_samples)
        self.decay = float(gamma)
