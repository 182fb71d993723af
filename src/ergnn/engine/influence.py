"""Influence of several models at once: one Gauss-Newton product and one forward-mode pass for all of them.

Models that share no parameters have a block-diagonal curvature matrix. Each row of a matrix ``[models, parameters]`` is
the vector of one model, and conjugate gradients have a step size per row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp

from ergnn.config.errors import CurvatureError
from ergnn.engine.curvature import Solution, flatten, gauss_newton_product, unflatten
from ergnn.engine.objective import Objective, ParamDict


@dataclass(frozen=True)
class StackedCurvature:
    """The Gauss-Newton matrices of stacked models, see :class:`~ergnn.engine.curvature.Curvature`.

    Args:
        objective: the minimized objective of the stacked models.
        damping: added to each diagonal, times the total weight of the model's examples.
        l2: λ of the term λ/2 ‖θ‖² in the minimized loss.
        tolerance, max_iterations: stopping criteria of conjugate gradients.
    """

    objective: Objective
    damping: float
    l2: float
    tolerance: float
    max_iterations: int

    def influence(self, target: Objective) -> list[tuple[Tensor, Solution]]:
        """Compute ``I(v) = −g_Tᵀ H⁻¹ ∇ℓ_v`` for every example of each model, with ``g_T = Σ_{t∈T} ∇ℓ_t``."""
        params = self.objective.parameters()
        leaves = {name: value.requires_grad_() for name, value in target.parameters().items()}
        with torch.enable_grad():
            total = target.losses(leaves).sum()
        grads = torch.autograd.grad(total, list(leaves.values()), materialize_grads=True)
        goal = self._rows(dict(zip(leaves, grads, strict=True)))
        solutions = self._solve(params, goal)
        direction = self._params(torch.stack([solution.x for solution in solutions]), params)
        along = -jvp(self.objective.losses, (params,), (direction,))[1]
        sizes = [len(part) for part in self.objective.examples]
        return list(zip(along.split(sizes), solutions, strict=True))

    def _solve(self, params: ParamDict, b: Tensor) -> list[Solution]:
        """Solve ``H x = b`` for every model; see :func:`~ergnn.engine.curvature.conjugate_gradients`."""
        inner = gauss_newton_product(self.objective, params)
        parts = self.objective.weights.split([len(part) for part in self.objective.examples])
        shift = self.damping * torch.stack([part.sum() for part in parts]).to(b).unsqueeze(1) + self.l2
        x, r, d = torch.zeros_like(b), b.clone(), b.clone()
        size, rr = b.double().norm(dim=1), b.double().square().sum(1)
        counts, residuals = [0] * b.size(0), [1.0 if value > 0 else 0.0 for value in size.tolist()]
        for products in range(self.max_iterations + 1):
            active = [residual > self.tolerance for residual in residuals]
            if not any(active):
                break
            if products == self.max_iterations:
                raise CurvatureError(
                    f"conjugate gradients left a relative residual of {max(residuals):.2g} after {products} products "
                    f"({self.tolerance:g} was requested); use a larger damping or more iterations"
                )
            a_d = self._rows(unflatten(inner(flatten(self._params(d, params))), params)) + shift * d
            curvature = (d.double() * a_d).sum(1)
            moving = torch.tensor(active, device=b.device)
            step = torch.where(moving, rr / curvature, 0.0).to(b).unsqueeze(1)
            x, r = x + step * d, r - step * a_d
            new = r.double().square().sum(1)
            found = torch.stack([new.sqrt() / size, curvature]).tolist()  # the only transfer of an iteration
            if any(on and not value > 0 for on, value in zip(active, found[1], strict=True)):
                raise CurvatureError("the Gauss-Newton matrix is not positive definite; use a larger damping")
            residuals = [value if on else old for on, value, old in zip(active, found[0], residuals, strict=True)]
            counts = [count + on for on, count in zip(active, counts, strict=True)]
            d, rr = r + torch.where(moving, new / rr, 0.0).to(b).unsqueeze(1) * d, new
        return [Solution(*found) for found in zip(x, counts, residuals, strict=True)]

    def _rows(self, params: ParamDict) -> Tensor:
        """Return stacked parameters as one row per model."""
        models = len(self.objective.examples)
        return torch.cat([value.reshape(models, -1) for value in params.values()], dim=1)

    def _params(self, rows: Tensor, like: ParamDict) -> ParamDict:
        """Invert :meth:`_rows`."""
        parts = rows.split([value.numel() // rows.size(0) for value in like.values()], dim=1)
        return {name: part.reshape_as(value) for part, (name, value) in zip(parts, like.items(), strict=True)}
