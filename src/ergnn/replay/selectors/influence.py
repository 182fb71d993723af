"""Influence maximization (IM): the nodes with the largest influence on the loss of a target set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ergnn.config.errors import check_at_least, check_between, check_choice
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.curvature import Curvature, Solution, gradient
from ergnn.engine.objective import can_be_stacked, make_objective
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import Selection, SelectionContext, Selector, Target, best_per_class

Sign = Literal["helpful", "harmful", "magnitude"]
TOLERANCE, LARGE_TOLERANCE = 1e-3, 1e-2
"""Default tolerances; the second is for large graphs, on which each product takes long and this one chose the same."""


@SELECTORS.register("im", help="largest influence on the loss of a target set (influence maximization)")
class Influence(Selector):
    """Ranks training nodes by ``I(v) = −Σ_{t∈T} ∇ℓ_tᵀ H⁻¹ ∇ℓ_v``, the derivative of T's loss in v's weight.

    The paper sums over *test* nodes, which uses their labels. Here, the target is the validation set; ``test`` is
    available for comparison, and results with it are marked leaky. The paper also asks for the "larger" influence
    without specifying the sign: a node is *helpful* if more weight on it lowers the target's loss, I(v) < 0.

    Args:
        target: ``val``, ``train`` or ``test`` (leaky).
        sign: ``helpful`` (most negative I first), ``harmful`` (most positive, the literal "largest value"),
            or ``magnitude``.
        damping: added to the diagonal of H, in addition to the L2 term; relative to the loss's total weight.
        tolerance: relative residual at which conjugate gradients stop; by default 1e-3, on graphs of a million directed
            edges or more 1e-2.
        max_iterations: maximum number of products.
    """

    def __init__(
        self,
        target: Target = "val",
        sign: Sign = "helpful",
        damping: float = 0.01,
        tolerance: float | None = None,
        max_iterations: int = 500,
    ) -> None:
        check_choice("target", target, Target)
        check_choice("sign", sign, Sign)
        check_at_least(0, damping=damping)
        check_at_least(1, max_iterations=max_iterations)
        check_between(0, 1, tolerance=tolerance)
        self.target, self.sign, self.leaky = target, sign, target == "test"
        self.damping, self.tolerance, self.max_iterations = damping, tolerance, max_iterations

    def score(self, context: SelectionContext) -> Tensor:
        return self._scores([context])[0][0]

    def select(self, context: SelectionContext) -> Selection:
        return self.select_together([context])[0]

    def select_together(self, contexts: Sequence[SelectionContext]) -> list[Selection]:
        """Solve all systems at once, unless their products take long or the models cannot be stacked."""
        models, is_large = [context.model for context in contexts], adjacency_of(contexts[0].graph).is_large
        if len(contexts) > 1 and (is_large or not can_be_stacked(models)):
            return [self.select(context) for context in contexts]
        selections = []
        for context, (scores, solution) in zip(contexts, self._scores(contexts), strict=True):
            chosen = best_per_class(scores, context)
            info = {"target": self.target, "iterations": solution.iterations, "residual": solution.residual}
            selections.append(Selection(chosen.nodes, chosen.scores, {**chosen.info, **info}))
        return selections

    def _scores(self, contexts: Sequence[SelectionContext]) -> list[tuple[Tensor, Solution]]:
        """Return the scores of the training nodes of each context, and the solution."""
        models = [context.model for context in contexts]
        trained = make_objective(models, [context.trained_on for context in contexts])
        target = make_objective(models, [context.examples(self.target) for context in contexts], trained.heads)
        params, tolerance = trained.parameters(), self.tolerance or (LARGE_TOLERANCE if trained.linked else TOLERANCE)
        replayed = torch.arange(contexts[0].nodes.numel(), trained.weights.numel(), device=trained.weights.device)
        sketched = replayed if trained.linked and replayed.numel() else None
        options = self.damping, contexts[0].l2, tolerance, self.max_iterations, sketched
        goal, results = gradient(target, params, torch.ones_like(target.weights)), []
        of_models = Curvature(trained, params, *options).influence(goal)
        for context, (of_examples, solution) in zip(contexts, of_models, strict=True):
            influence = of_examples[: context.nodes.numel()]
            scores = {"helpful": -influence, "harmful": influence, "magnitude": influence.abs()}[self.sign]
            results.append((scores.detach(), solution))
        return results
