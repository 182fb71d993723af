"""Influence maximization (IM): the nodes with the largest influence on the loss of a target set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from ergnn.config.errors import check_at_least, check_between, check_choice
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.curvature import Curvature, CurvatureKind, gradient, influence_together
from ergnn.engine.objective import can_be_stacked, make_objective
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import Selection, SelectionContext, Selector, Target, best_per_class

Sign = Literal["helpful", "harmful", "magnitude"]
TOLERANCE, LARGE_TOLERANCE = 1e-3, 1e-2
"""Default tolerances; the second is for large graphs, on which each product takes long and this one chose the same."""
SKETCH = 16
"""Default rank of the preconditioner on a large graph with replayed nodes; chosen by measurement."""


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
        curvature: ``gauss-newton``, or ``hessian``, which fails if curvature is negative.
        damping: added to the diagonal of H, in addition to the L2 term; relative to the loss's total weight.
        tolerance: relative residual at which conjugate gradients stop; by default 1e-3, on graphs of a million directed
            edges or more 1e-2.
        max_iterations: maximum number of products.
        rank: rank of the preconditioner, 0 for none; useful if damping is small (see docs/influence.md). By default 0,
            but on graphs of a million directed edges or more, the curvature of replayed nodes is approximated.
    """

    def __init__(
        self,
        target: Target = "val",
        sign: Sign = "helpful",
        curvature: CurvatureKind = "gauss-newton",
        damping: float = 0.01,
        tolerance: float | None = None,
        max_iterations: int = 500,
        rank: int | None = None,
    ) -> None:
        check_choice("target", target, Target)
        check_choice("sign", sign, Sign)
        check_choice("curvature", curvature, CurvatureKind)
        check_at_least(0, damping=damping, rank=rank)
        check_at_least(1, max_iterations=max_iterations)
        check_between(0, 1, tolerance=tolerance)
        self.target, self.sign, self.leaky = target, sign, target == "test"
        self.curvature, self.damping = curvature, damping
        self.tolerance, self.max_iterations = tolerance, max_iterations
        self.rank = rank

    def score(self, context: SelectionContext) -> Tensor:
        return self._score(context)[0]

    def select(self, context: SelectionContext) -> Selection:
        return self._selection(context, *self._score(context))

    def select_together(self, contexts: Sequence[SelectionContext]) -> list[Selection]:
        """Solve all systems at once; those with other matrices and preconditioners one by one."""
        lead, simple = contexts[0], self.curvature == "gauss-newton" and not self.rank
        trained, heads = [context.trained_on for context in contexts], torch.unique(lead.trained_on.heads).tolist()
        models = [context.model for context in contexts]
        if not simple or len(contexts) == 1 or adjacency_of(lead.graph).is_large or not can_be_stacked(models):
            return [self.select(context) for context in contexts]
        objective = make_objective(models, trained, heads)
        target = make_objective(models, [context.examples(self.target) for context in contexts], heads)
        options = self.damping, lead.l2, self.tolerance or TOLERANCE, self.max_iterations
        return [
            self._selection(context, self._signed(influence[: context.nodes.numel()]), found.iterations, found.residual)
            for context, (influence, found) in zip(
                contexts, influence_together(objective, target, *options), strict=True
            )
        ]

    def _selection(self, context: SelectionContext, scores: Tensor, iterations: int, residual: float) -> Selection:
        chosen = best_per_class(scores, context)
        info = {**chosen.info, "target": self.target, "iterations": iterations, "residual": residual}
        return Selection(chosen.nodes, chosen.scores, info)

    def _signed(self, influence: Tensor) -> Tensor:
        scores = {"helpful": -influence, "harmful": influence, "magnitude": influence.abs()}[self.sign]
        return scores.detach()

    def _score(self, context: SelectionContext) -> tuple[Tensor, int, float]:
        trained = make_objective([context.model], [context.trained_on])
        target = make_objective([context.model], [context.examples(self.target)], heads=trained.heads)
        params = trained.parameters()
        goal = gradient(target, params, torch.ones_like(target.weights))
        replayed = torch.arange(context.nodes.numel(), trained.weights.numel(), device=goal.device)
        sketched = replayed if self.rank is None and trained.linked and replayed.numel() else None
        curvature = Curvature(
            trained,
            params,
            self.curvature,
            self.damping,
            context.l2,
            self.tolerance or (LARGE_TOLERANCE if trained.linked else TOLERANCE),
            self.max_iterations,
            (self.rank or 0) if sketched is None else SKETCH,
            sketched,
        )
        influence, solution = curvature.influence(goal)
        return (
            self._signed(influence[: context.nodes.numel()]),
            (self.rank or 0) + solution.iterations,
            solution.residual,
        )
