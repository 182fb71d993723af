"""Curvature of a trained objective, and influence from it.

The influence of training node ``v`` on the summed loss of a target set ``T`` (the paper's ℐ_up,loss) is

    I(v) = − (Σ_{t∈T} ∇ℓ_t)ᵀ H⁻¹ ∇ℓ_v .

With ``w = H⁻¹ Σ_t ∇ℓ_t`` from one solve, ``∇ℓ_vᵀ w`` is the derivative of node v's loss along ``w``: a single
forward-mode pass gives it for every node at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp, vjp

from ergnn.errors import CurvatureError, InputError, UnknownNameError
from ergnn.nn.objective import Objective, ParamDict

CURVATURES = ("gauss-newton", "hessian")
Product = Callable[[Tensor], Tensor]


def flatten(params: ParamDict) -> Tensor:
    return torch.cat([value.reshape(-1) for value in params.values()])


def unflatten(vector: Tensor, like: ParamDict) -> ParamDict:
    parts = vector.split([value.numel() for value in like.values()])
    return {name: part.view_as(value) for part, (name, value) in zip(parts, like.items(), strict=True)}


def gradient(objective: Objective, params: ParamDict, weights: Tensor) -> Tensor:
    """``Σ_i weights_i ∇ℓ_i`` as one vector."""
    pull = vjp(objective.losses, params)[1]
    return flatten(pull(weights)[0])


def gauss_newton_product(objective: Objective, params: ParamDict) -> Product:
    """``v ↦ G v`` with ``G = Σ_i w_i J_iᵀ (diag p_i − p_i p_iᵀ) J_i``, ``J_i = ∂ logits_i / ∂ θ``.

    G is the Hessian of the weighted loss less the part from the logits' own second derivatives; it is positive
    semi-definite, which the Hessian of a trained GAT is not.
    """
    leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
    points = list(leaves.values())
    with torch.enable_grad():
        logits = objective.logits(leaves)
        probe = torch.zeros_like(logits, requires_grad=True)
        pulled = torch.autograd.grad(logits, points, probe, create_graph=True, materialize_grads=True)
    read = [i for i, part in enumerate(pulled) if part.requires_grad]  # parameters that no score depends on have none
    p = torch.softmax(logits.detach(), dim=1)
    weights = objective.weights.to(p.dtype).unsqueeze(1)

    def product(vector: Tensor) -> Tensor:
        # Jᵀu is linear in u, so that its derivative in u along v is J v; the forward pass is never repeated
        parts = list(unflatten(vector, params).values())
        along = torch.autograd.grad([pulled[i] for i in read], probe, [parts[i] for i in read], retain_graph=True)[0]
        inner = weights * p * (along - (p * along).sum(1, keepdim=True))
        grads = torch.autograd.grad(logits, points, inner, retain_graph=True, materialize_grads=True)
        return torch.cat([g.reshape(-1) for g in grads])

    return product


def hessian_product(objective: Objective, params: ParamDict) -> Product:
    """``v ↦ H v`` with ``H = Σ_i w_i ∇²ℓ_i``, forward over reverse."""
    weights = objective.weights

    def gradient_at(point: ParamDict) -> ParamDict:
        losses, pull = vjp(objective.losses, point)[:2]
        return pull(weights.to(losses.dtype))[0]

    def product(vector: Tensor) -> Tensor:
        return flatten(jvp(gradient_at, (params,), (unflatten(vector, params),))[1])

    return product


@dataclass(frozen=True)
class Solution:
    """What conjugate gradients found: ``x``, the number of products, and ``‖Ax − b‖ / ‖b‖``."""

    x: Tensor
    iterations: int
    residual: float


def conjugate_gradients(product: Product, b: Tensor, *, tolerance: float = 1e-3, max_iterations: int = 500) -> Solution:
    """Solve ``A x = b`` for a positive definite ``A``, to a relative residual.

    Raises:
        CurvatureError: where a direction with ``dᵀ A d ≤ 0`` is met, or the tolerance is not reached.
    """
    x, r = torch.zeros_like(b), b.clone()
    d, rr, size = r.clone(), float(r @ r), float(b.norm())
    if size == 0.0:
        return Solution(x, 0, 0.0)
    for iteration in range(1, max_iterations + 1):
        a_d = product(d)
        curvature = float(d @ a_d)
        if not curvature > 0:
            raise CurvatureError(
                f"negative curvature ({curvature / float(d @ d):.3g}) after {iteration} product(s): the matrix is not "
                "positive definite here; use curvature='gauss-newton', or a larger damping"
            )
        step = rr / curvature
        x, r = x + step * d, r - step * a_d
        new = float(r @ r)
        if new**0.5 <= tolerance * size:
            return Solution(x, iteration, new**0.5 / size)
        d, rr = r + (new / rr) * d, new
    raise CurvatureError(
        f"conjugate gradients left a relative residual of {rr**0.5 / size:.2g} after {max_iterations} products "
        f"({tolerance:g} was asked for); use a larger damping or more iterations"
    )


@dataclass(frozen=True)
class Curvature:
    """The matrix H of a trained objective, ``curvature + (l2 + damping · Σ weights) I``, and solves with it.

    Args:
        objective: what was minimised; its examples' weights are those of the loss.
        params: the minimum.
        kind: ``gauss-newton`` or ``hessian``.
        damping: added to the diagonal, times the examples' total weight (1 for a mean of losses); the Gauss-Newton
            matrix of a large model is singular without.
        l2: λ of the term λ/2 ‖θ‖² in the minimised loss.
    """

    objective: Objective
    params: ParamDict
    kind: str = "gauss-newton"
    damping: float = 0.01
    l2: float = 0.0
    tolerance: float = 1e-3
    max_iterations: int = 500

    def __post_init__(self) -> None:
        if self.kind not in CURVATURES:
            raise UnknownNameError("curvature", self.kind, CURVATURES)
        if self.damping < 0:
            raise InputError(f"damping is {self.damping}; it must be 0 or more")

    def product(self) -> Product:
        make = gauss_newton_product if self.kind == "gauss-newton" else hessian_product
        inner, shift = make(self.objective, self.params), self.damping * float(self.objective.weights.sum()) + self.l2
        return lambda vector: inner(vector) + shift * vector

    def solve(self, b: Tensor) -> Solution:
        return conjugate_gradients(self.product(), b, tolerance=self.tolerance, max_iterations=self.max_iterations)

    def influence(self, target_gradient: Tensor) -> tuple[Tensor, Solution]:
        """``I(v) = −g_Tᵀ H⁻¹ ∇ℓ_v`` for every example of the objective, by one solve and one JVP."""
        solution = self.solve(target_gradient)
        direction = unflatten(solution.x, self.params)
        return -jvp(self.objective.losses, (self.params,), (direction,))[1], solution

    def self_influence(self, examples: Tensor) -> Tensor:
        """``∇ℓ_vᵀ H⁻¹ ∇ℓ_v`` for some examples (by position): one solve each."""
        product = self.product()
        losses, pull = vjp(self.objective.losses, self.params)[:2]
        out = []
        for i in examples.tolist():
            one = torch.zeros_like(losses)
            one[i] = 1.0
            g = flatten(pull(one)[0])
            found = conjugate_gradients(product, g, tolerance=self.tolerance, max_iterations=self.max_iterations)
            out.append(g @ found.x)
        return torch.stack(out)
