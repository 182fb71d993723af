"""Curvature of a trained objective, and influence from it.

The influence of training node ``v`` on the summed loss of a target set ``T`` (the paper's ℐ_up,loss) is

    I(v) = − (Σ_{t∈T} ∇ℓ_t)ᵀ H⁻¹ ∇ℓ_v .

With ``w = H⁻¹ Σ_t ∇ℓ_t`` from one solve, ``∇ℓ_vᵀ w`` is the derivative of node v's loss along ``w``: a single product
with the Jacobian gives it for every node at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import grad, jvp, vjp

from ergnn.config.errors import check_at_least, check_choice
from ergnn.engine.hardware import Recorded, on_stream, side_stream
from ergnn.engine.objective import Objective, ParamDict
from ergnn.engine.solves import Product, Solution, conjugate_gradients, nystrom_preconditioner, solve_together

CurvatureKind = Literal["gauss-newton", "hessian"]


def flatten(params: ParamDict) -> Tensor:
    """Concatenate parameters to one vector."""
    return flatten_models(params, 1)[0]


def flatten_models(params: ParamDict, models: int) -> Tensor:
    """Concatenate stacked parameters to one row per model, ``[models, parameters]``."""
    return torch.cat([value.reshape(models, -1) for value in params.values()], dim=1)


def unflatten(vector: Tensor, like: ParamDict) -> ParamDict:
    """Invert :func:`flatten` or :func:`flatten_models`."""
    rows = torch.atleast_2d(vector)
    parts = rows.split([value.numel() // rows.size(0) for value in like.values()], dim=1)
    return {name: part.reshape(value.shape) for part, (name, value) in zip(parts, like.items(), strict=True)}


def parts_of(objective: Objective, batch: int | None) -> Iterator[Objective]:
    """Yield the examples in batches of ``batch`` (None for all at once), each built when it is needed."""
    count = objective.weights.numel()
    if batch is None or batch >= count:
        yield objective
        return
    for index in torch.arange(count, device=objective.weights.device).split(batch):
        yield objective.batch(index)


def gradient(objective: Objective, params: ParamDict, weights: Tensor, batch: int | None = None) -> Tensor:
    """Compute ``Σ_i weights_i ∇ℓ_i`` as one vector, computed in batches of ``batch`` examples."""
    total, start = torch.zeros_like(flatten(params)), 0
    for part in parts_of(objective, batch):
        losses, pull = vjp(part.losses, params)[:2]
        end = start + losses.numel()
        total += flatten(pull(weights[start:end].to(losses.dtype))[0])
        start = end
    return total


class Linearization:
    """The logits of an objective at some parameters, and products with their Jacobian ``J``, from one forward pass.

    Attributes:
        logits: the logits, ``[n, outputs]``.
        stream: the GPU stream of the forward pass if products can be recorded, otherwise None.
    """

    def __init__(self, objective: Objective, params: ParamDict) -> None:
        self._params, device = params, objective.weights.device
        self._objective = objective  # recorded products read its tensors
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        self._points = list(leaves.values())
        self.stream = side_stream(device) if device.type == "cuda" and objective.recordable else None
        with on_stream(self.stream), torch.enable_grad():
            self._logits = objective.logits(leaves)
            self._probe = torch.zeros_like(self._logits, requires_grad=True)
            pulled = torch.autograd.grad(
                self._logits, self._points, self._probe, create_graph=True, materialize_grads=True
            )
        # parameters that no score depends on have no derivative
        self._pulled = {i: part for i, part in enumerate(pulled) if part.requires_grad}
        self.logits = self._logits.detach()

    def forward(self, vector: Tensor) -> Tensor:
        """Compute ``J v``: ``Jᵀu`` is linear in ``u``, so this is its derivative in ``u`` along ``v``."""
        parts = list(unflatten(vector, self._params).values())
        along = [parts[i] for i in self._pulled]
        return torch.autograd.grad(list(self._pulled.values()), self._probe, along, retain_graph=True)[0]

    def backward(self, u: Tensor) -> Tensor:
        """Compute ``Jᵀ u``."""
        grads = torch.autograd.grad(self._logits, self._points, u, retain_graph=True, materialize_grads=True)
        return torch.cat([g.reshape(-1) for g in grads])


def gauss_newton_product(
    objective: Objective, params: ParamDict, at: Linearization | None = None, record: bool = True
) -> Product:
    """Return ``v ↦ G v`` with ``G = Σ_i w_i J_iᵀ (∂²ℓ_i / ∂z_i²) J_i``, logits ``z_i``, ``J_i = ∂z_i / ∂θ``.

    For cross-entropy the inner matrix is ``diag p_i − p_i p_iᵀ``. G is the Hessian of the weighted loss without the
    term with the second derivatives of the logits. If the loss is convex in the logits, G is positive semi-definite,
    which the Hessian of a trained GAT is not.

    Args:
        at: the logits at ``params``, if they are known.
        record: on a GPU, record products as a CUDA graph if possible.
    """
    at = at or Linearization(objective, params)
    middle = _loss_curvature(objective, at.logits)

    def product(vector: Tensor) -> Tensor:
        return at.backward(middle(at.forward(vector)))

    if at.stream is None or not record:
        return product
    recorded = Recorded(product, at.stream)
    return lambda vector: recorded(vector).clone()


def _loss_curvature(objective: Objective, logits: Tensor) -> Product:
    """Return ``u ↦ w_i ∇²ℓ_i(z_i) u_i``, the second derivative of the losses with respect to the logits."""
    weights = objective.weights.to(logits.dtype)
    if objective.has_default_loss:
        p, w = torch.softmax(logits, dim=1), weights.unsqueeze(1)
        return lambda along: w * p * (along - (p * along).sum(1, keepdim=True))
    slope = grad(lambda z: (weights * objective.loss(z)).sum())
    return lambda along: jvp(slope, (logits,), (along,))[1]


def hessian_product(objective: Objective, params: ParamDict) -> Product:
    """Return ``v ↦ H v`` with ``H = Σ_i w_i ∇²ℓ_i``, forward over reverse."""
    weights = objective.weights

    def gradient_at(point: ParamDict) -> ParamDict:
        losses, pull = vjp(objective.losses, point)[:2]
        return pull(weights.to(losses.dtype))[0]

    def product(vector: Tensor) -> Tensor:
        return flatten(jvp(gradient_at, (params,), (unflatten(vector, params),))[1])

    return product


@dataclass(frozen=True)
class Curvature:
    """The matrix H of a trained objective, ``curvature + (l2 + damping · Σ weights) I``, and solves with it.

    Args:
        objective: the minimized objective; the weights of its examples are those of the loss.
        params: parameters at the minimum.
        kind: ``gauss-newton`` or ``hessian``.
        damping: added to the diagonal, times the examples' total weight (1 for a mean of losses); without it, the
            Gauss-Newton matrix of a large model is singular.
        l2: λ of the term λ/2 ‖θ‖² in the minimized loss.
        tolerance, max_iterations: stopping criteria of conjugate gradients.
        rank: rank of the preconditioner (:func:`nystrom_preconditioner`), which costs as many products; 0 for none.
        sketched: positions of the examples whose Gauss-Newton matrix the preconditioner approximates; None for all.
            A few examples with most of the weight, e.g. replayed nodes, have most of the large eigenvalues, and
            products with their matrix take less time.
        batch: examples per batch of a product; fewer need less memory and more time. None for all.
    """

    objective: Objective
    params: ParamDict
    kind: CurvatureKind = "gauss-newton"
    damping: float = 0.01
    l2: float = 0.0
    tolerance: float = 1e-3
    max_iterations: int = 500
    rank: int = 0
    batch: int | None = None
    sketched: Tensor | None = None

    def __post_init__(self) -> None:
        check_choice("curvature", self.kind, CurvatureKind)
        check_at_least(0, damping=self.damping, rank=self.rank)
        check_at_least(1, batch=self.batch)

    @property
    def shift(self) -> float:
        return self.damping * float(self.objective.weights.sum()) + self.l2

    @cached_property
    def _at(self) -> Linearization:
        return Linearization(self.objective, self.params)

    @cached_property
    def _inner(self) -> Product:
        exact = self.kind == "hessian"
        if self.batch is None or self.batch >= self.objective.weights.numel():
            if exact:
                return hessian_product(self.objective, self.params)
            return gauss_newton_product(self.objective, self.params, self._at)

        def summed(vector: Tensor) -> Tensor:  # rebuild every batch each time, to bound memory
            total = torch.zeros_like(vector)
            for batch in parts_of(self.objective, self.batch):
                options: dict[str, Any] = {} if exact else {"record": False}
                make = hessian_product if exact else gauss_newton_product
                total += make(batch, self.params, **options)(vector)
            return total

        return summed

    @cached_property
    def _preconditioner(self) -> Product | None:
        if not self.rank:
            return None
        inner, like = self._inner, flatten(self.params)
        if self.sketched is not None:
            inner = gauss_newton_product(self.objective.batch(self.sketched), self.params)
        return nystrom_preconditioner(inner, like, self.rank, self.shift)

    def product(self) -> Product:
        inner, shift = self._inner, self.shift
        return lambda vector: inner(vector) + shift * vector

    def solve(self, b: Tensor) -> Solution:
        """Compute ``H⁻¹ b``; the number of products excludes those of the preconditioner, which is reused."""
        limits: dict[str, Any] = {"tolerance": self.tolerance, "max_iterations": self.max_iterations}
        return conjugate_gradients(self.product(), b, preconditioner=self._preconditioner, **limits)

    def influence(self, target_gradient: Tensor) -> tuple[Tensor, Solution]:
        """Compute ``I(v) = −g_Tᵀ H⁻¹ ∇ℓ_v`` for every example of the objective, with one solve and one JVP."""
        solution = self.solve(target_gradient)
        changes = []
        for part in parts_of(self.objective, self.batch):
            at = self._at if part is self.objective else Linearization(part, self.params)
            changes.append(_loss_change(part, at, solution.x))
        return -torch.cat(changes), solution

    def self_influence(self, examples: Tensor) -> Tensor:
        """Compute ``∇ℓ_vᵀ H⁻¹ ∇ℓ_v`` for the given positions, with one solve per example."""
        losses, pull = vjp(self.objective.losses, self.params)[:2]
        out = []
        for i in examples.tolist():
            one = torch.zeros_like(losses)
            one[i] = 1.0
            g = flatten(pull(one)[0])
            out.append(g @ self.solve(g).x)
        return torch.stack(out)


def _loss_change(objective: Objective, at: Linearization, direction: Tensor) -> Tensor:
    """Compute the derivative of the loss of each example along a vector."""
    return (grad(lambda z: objective.loss(z).sum())(at.logits) * at.forward(direction)).sum(1)


def influence_together(
    objective: Objective, target: Objective, damping: float, l2: float, tolerance: float, max_iterations: int
) -> list[tuple[Tensor, Solution]]:
    """Compute ``I(v) = −g_Tᵀ G⁻¹ ∇ℓ_v`` for every example of each of several stacked models.

    The models share no parameters, so that their Gauss-Newton matrix is block-diagonal: a product is one product.

    Args:
        objective: the minimized objective of the stacked models.
        target: the target set of each model, ``g_T = Σ_{t∈T} ∇ℓ_t``.
        damping, l2, tolerance, max_iterations: as for :class:`Curvature`.
    """
    params, models = objective.parameters(), len(objective.sizes)
    at = Linearization(objective, params)
    inner = gauss_newton_product(objective, params, at)
    weights = torch.stack([own.sum() for own in objective.weights.split(objective.sizes)])

    def product(rows: Tensor) -> Tensor:
        shift = (damping * weights + l2).to(rows).unsqueeze(1)
        change = inner(flatten(unflatten(rows, params)))
        return flatten_models(unflatten(change, params), models) + shift * rows

    goal = gradient(target, params, torch.ones_like(target.weights))
    b = flatten_models(unflatten(goal, params), models)
    solutions = solve_together(product, b, tolerance, max_iterations)
    directions = flatten(unflatten(torch.stack([solution.x for solution in solutions]), params))
    influence = -_loss_change(objective, at, directions)
    return list(zip(influence.split(objective.sizes), solutions, strict=True))
