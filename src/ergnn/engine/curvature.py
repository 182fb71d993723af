"""Curvature of a trained objective, solves with it from products alone, and influence.

The influence of training node ``v`` on the summed loss of a target set ``T`` (the paper's ℐ_up,loss) is

    I(v) = − (Σ_{t∈T} ∇ℓ_t)ᵀ H⁻¹ ∇ℓ_v .

With ``w = H⁻¹ Σ_t ∇ℓ_t`` from one solve, ``∇ℓ_vᵀ w`` is the derivative of node v's loss along ``w``: a single product
with the Jacobian gives it for every node at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ergnn.config.errors import CurvatureError
from ergnn.engine.hardware import Recorded, on_stream, side_stream
from ergnn.engine.losses import Objective, ParamDict, gradients, leaves_of

Product = Callable[[Tensor], Tensor]
LOG = logging.getLogger(__name__)
"""Logs every product at level INFO."""
RANK = 16
"""Rank of the preconditioner; chosen by measurement."""


def flatten(params: ParamDict) -> Tensor:
    """Concatenate parameters to one vector."""
    return flatten_models(params, 1)[0]


def flatten_models(params: ParamDict, models: int) -> Tensor:
    """Concatenate stacked parameters to one row per model, ``[models, parameters]``."""
    return torch.cat([value.reshape(models, -1) for value in params.values()], dim=1)


def unflatten(vector: Tensor, like: ParamDict) -> ParamDict:
    """Invert :func:`flatten` or :func:`flatten_models`."""
    rows = torch.atleast_2d(vector)
    columns = rows.split([value.numel() // rows.size(0) for value in like.values()], dim=1)
    return {name: entries.reshape(value.shape) for entries, (name, value) in zip(columns, like.items(), strict=True)}


def gradient(objective: Objective, params: ParamDict, weights: Tensor) -> Tensor:
    """Compute ``Σ_i weights_i ∇ℓ_i`` as one vector."""
    leaves = leaves_of(params)
    with torch.enable_grad():
        losses = objective.losses(leaves)
    return flatten(gradients(losses, leaves, weights.to(losses.dtype)))


class Linearization:
    """The logits of an objective at some parameters, and products with their Jacobian ``J``, from one forward pass.

    Attributes:
        logits: the logits, ``[n, outputs]``.
        stream: the GPU stream of the forward pass if products can be recorded, otherwise None.
    """

    def __init__(self, objective: Objective, params: ParamDict) -> None:
        device = objective.weights.device
        self._objective, self._leaves = objective, leaves_of(params)  # recorded products read the objective's tensors
        self.stream = side_stream(device) if device.type == "cuda" and objective.recordable else None
        with on_stream(self.stream), torch.enable_grad():
            self._logits = objective.logits(self._leaves)
            self._probe = torch.zeros_like(self._logits, requires_grad=True)
            pulled = gradients(self._logits, self._leaves, self._probe, create_graph=True)
        # parameters that no score depends on have no derivative
        self._pulled = {name: value for name, value in pulled.items() if value.requires_grad}
        self.logits = self._logits.detach()

    def forward(self, vector: Tensor) -> Tensor:
        """Compute ``J v``: ``Jᵀu`` is linear in ``u``, so this is its derivative in ``u`` along ``v``."""
        by_name = unflatten(vector, self._leaves)
        along = [by_name[name] for name in self._pulled]
        return torch.autograd.grad(list(self._pulled.values()), self._probe, along, retain_graph=True)[0]

    def backward(self, u: Tensor) -> Tensor:
        """Compute ``Jᵀ u``."""
        return flatten(gradients(self._logits, self._leaves, u))


def gauss_newton_product(objective: Objective, params: ParamDict, at: Linearization | None = None) -> Product:
    """Return ``v ↦ G v`` with ``G = Σ_i w_i J_iᵀ (∂²ℓ_i / ∂z_i²) J_i``, logits ``z_i``, ``J_i = ∂z_i / ∂θ``.

    For cross-entropy the inner matrix is ``diag p_i − p_i p_iᵀ``. G is the Hessian of the weighted loss without the
    term with the second derivatives of the logits. If the loss is convex in the logits, G is positive semi-definite,
    which the Hessian of a trained GAT is not. On a GPU, products are recorded as a CUDA graph.

    Args:
        at: the logits at ``params``, if they are known.
    """
    at = at or Linearization(objective, params)
    middle = _loss_curvature(objective, at.logits)

    def product(vector: Tensor) -> Tensor:
        return at.backward(middle(at.forward(vector)))

    if at.stream is None:
        return product
    recorded = Recorded(product, at.stream)
    return lambda vector: recorded(vector).clone()


def _loss_curvature(objective: Objective, logits: Tensor) -> Product:
    """Return ``u ↦ w_i ∇²ℓ_i(z_i) u_i``, the second derivative of the losses with respect to the logits."""
    weights = objective.weights.to(logits.dtype)
    if objective.has_default_loss:
        p, w = torch.softmax(logits, dim=1), weights.unsqueeze(1)
        return lambda along: w * p * (along - (p * along).sum(1, keepdim=True))

    def product(along: Tensor) -> Tensor:
        z = logits.detach().requires_grad_()
        return torch.autograd.grad(_loss_slope(objective, z, weights, create_graph=True), z, along)[0]

    return product


def _loss_slope(objective: Objective, z: Tensor, weights: Tensor, create_graph: bool = False) -> Tensor:
    """Return the derivatives of the weighted losses with respect to logits, which must be a leaf."""
    with torch.enable_grad():
        return torch.autograd.grad((weights * objective.loss(z)).sum(), z, create_graph=create_graph)[0]


@dataclass(frozen=True)
class Curvature:
    """The matrix H of a trained objective, ``G + (l2 + damping · Σ weights) I``, and solves with it.

    Models that are trained side by side share no parameters, so that their matrix is block-diagonal: solves have one
    row per model, and a product is one product for all.

    Args:
        objective: the minimized objective; the weights of its examples are those of the loss.
        params: parameters at the minimum.
        damping: added to the diagonal, times the examples' total weight (1 for a mean of losses); without it, the
            Gauss-Newton matrix of a large model is singular.
        l2: λ of the term λ/2 ‖θ‖² in the minimized loss.
        tolerance, max_iterations: stopping criteria of conjugate gradients.
        sketched: positions of examples of one model whose Gauss-Newton matrix is approximated to precondition solves
            (:func:`nystrom_preconditioner`). A few examples with most of the weight, e.g. replayed nodes, have most of
            the large eigenvalues, and products with their matrix take less time.
    """

    objective: Objective
    params: ParamDict
    damping: float = 0.01
    l2: float = 0.0
    tolerance: float = 1e-3
    max_iterations: int = 500
    sketched: Tensor | None = None

    @cached_property
    def _at(self) -> Linearization:
        return Linearization(self.objective, self.params)

    @cached_property
    def shifts(self) -> Tensor:
        """The number on the diagonal of H, of each model, ``[models, 1]``."""
        totals = torch.stack([weights.sum() for weights in self.objective.weights.split(self.objective.sizes)])
        return (self.damping * totals.double() + self.l2).unsqueeze(1)

    @cached_property
    def _preconditioner(self) -> Product | None:
        if self.sketched is None:
            return None
        of_sketched = gauss_newton_product(self.objective.batch(self.sketched), self.params)
        return nystrom_preconditioner(of_sketched, flatten(self.params), RANK, float(self.shifts))

    @cached_property
    def product(self) -> Product:
        """The function ``v ↦ H v`` of the rows of all models."""
        like, shifts = self.params, self.shifts
        of_all = gauss_newton_product(self.objective, like, self._at)

        def product(rows: Tensor) -> Tensor:
            change = of_all(flatten(unflatten(rows, like)))
            return flatten_models(unflatten(change, like), rows.size(0)) + shifts.to(rows) * rows

        return product

    def solve(self, b: Tensor) -> list[Solution]:
        """Compute ``H⁻¹ b``, one row per model."""
        return conjugate_gradients(self.product, b, self.tolerance, self.max_iterations, self._preconditioner)

    def influence(self, target_gradient: Tensor) -> list[tuple[Tensor, Solution]]:
        """Compute ``I(v) = −g_Tᵀ H⁻¹ ∇ℓ_v`` for every example of each model, with one solve and one JVP."""
        b = flatten_models(unflatten(target_gradient, self.params), len(self.objective.sizes))
        solutions = self.solve(b)
        along = flatten(unflatten(torch.stack([solution.x for solution in solutions]), self.params))
        logits = self._at.logits.clone().requires_grad_()
        slope = _loss_slope(self.objective, logits, torch.ones_like(self.objective.weights))
        influence = -(slope * self._at.forward(along)).sum(1)
        return list(zip(influence.split(self.objective.sizes), solutions, strict=True))


@dataclass(frozen=True)
class Solution:
    """Result of conjugate gradients: ``x``, the number of products, and ``‖Ax − b‖ / ‖b‖``."""

    x: Tensor
    iterations: int
    residual: float


def conjugate_gradients(
    product: Product,
    b: Tensor,
    tolerance: float = 1e-3,
    max_iterations: int = 500,
    preconditioner: Product | None = None,
) -> list[Solution]:
    """Solve ``A x = b`` up to a relative residual for several positive definite ``A``, one for each row of ``b``.

    Args:
        product: the products of all rows with their matrices.
        preconditioner: ``v ↦ M v`` of all rows, for positive definite ``M ≈ A⁻¹``.

    Raises:
        CurvatureError: if a direction has ``dᵀ A d ≤ 0``, or the tolerance is not reached.
    """
    x, r, size = torch.zeros_like(b), b, b.double().norm(dim=1)
    z = r if preconditioner is None else preconditioner(r)
    d, rz = z, _products(r, z)
    counts, residuals = [0] * b.size(0), [1.0 if value > 0 else 0.0 for value in size.tolist()]
    while any(active := [residual > tolerance for residual in residuals]):
        if max(counts) == max_iterations:
            raise CurvatureError(
                f"conjugate gradients left a relative residual of {max(residuals):.2g} after {max_iterations} products "
                f"({tolerance:g} was requested); use a larger damping or more iterations"
            )
        a_d, moving = product(d), torch.tensor(active, device=b.device)
        counts = [count + on for on, count in zip(active, counts, strict=True)]
        curvature = _products(d, a_d)
        step = torch.where(moving, rz / curvature, 0.0).to(b).unsqueeze(1)
        x, r = x + step * d, r - step * a_d
        z = r if preconditioner is None else preconditioner(r)
        new = _products(r, z)
        norms, along = torch.stack([r.double().norm(dim=1) / size, curvature]).tolist()  # the only transfer
        if any(on and not value > 0 for on, value in zip(active, along, strict=True)):
            raise CurvatureError(
                f"no positive curvature after {max(counts)} product(s): the matrix is not positive definite here; "
                "use a larger damping"
            )
        residuals = [value if on else old for on, value, old in zip(active, norms, residuals, strict=True)]
        d, rz = z + torch.where(moving, new / rz, 0.0).to(b).unsqueeze(1) * d, new
        LOG.info("conjugate gradients: %d product(s), residual %.2g of %.2g", max(counts), max(residuals), tolerance)
    return [Solution(*solution) for solution in zip(x, counts, residuals, strict=True)]


def _products(a: Tensor, b: Tensor) -> Tensor:
    return (a.double() * b.double()).sum(1)


def nystrom_preconditioner(product: Product, like: Tensor, rank: int, shift: float) -> Product:
    """Return ``v ↦ M v`` of one row, ``M ≈ (G + shift I)⁻¹``, from ``rank`` products (Frangella et al. 2023).

    With a random orthonormal Ω, ``G ≈ (GΩ)(ΩᵀGΩ)⁻¹(GΩ)ᵀ = U diag(λ) Uᵀ``, and for the smallest eigenvalue ``λ_k`` in it

        M = (λ_k + shift) U diag(1 / (λ + shift)) Uᵀ + I − U Uᵀ .

    G of a few labeled nodes has low rank but dense eigenvectors: removing its large eigenvalues helps, whereas a
    diagonal preconditioner makes convergence worse.
    """
    generator, size = torch.Generator().manual_seed(0), like.numel()
    drawn = torch.randn(size, min(rank, size), generator=generator, dtype=torch.float32)
    omega = torch.linalg.qr(drawn.to(like.device, torch.float64)).Q.to(like)
    sketch = torch.stack([product(column) for column in omega.T.contiguous()], dim=1)
    vectors, inside = _positive(omega.T @ sketch)
    root = sketch @ (vectors * inside.rsqrt()).to(like)
    turn, large = _positive(root.T @ root)
    if not large.numel():
        return lambda rows: rows
    basis = root @ (turn * large.rsqrt()).to(like)
    weight = ((float(large[0]) + shift) / (large + shift) - 1.0).to(like)
    return lambda rows: (rows[0] + basis @ (weight * (basis.T @ rows[0]))).unsqueeze(0)


def _positive(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvectors and eigenvalues above rounding errors, in ascending order."""
    values, vectors = torch.linalg.eigh(matrix.double())
    large = values > 10 * torch.finfo(matrix.dtype).eps * values.abs().sum()
    return vectors[:, large], values[large]
