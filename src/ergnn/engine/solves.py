"""Conjugate gradients and a preconditioner for them, from products with a matrix."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ergnn.config.errors import CurvatureError

Product = Callable[[Tensor], Tensor]
LOG = logging.getLogger(__name__)
"""Logs every product at level INFO."""


@dataclass(frozen=True)
class Solution:
    """Result of conjugate gradients: ``x``, the number of products, and ``‖Ax − b‖ / ‖b‖``."""

    x: Tensor
    iterations: int
    residual: float


def conjugate_gradients(
    product: Product,
    b: Tensor,
    *,
    tolerance: float = 1e-3,
    max_iterations: int = 500,
    start: Tensor | None = None,
    preconditioner: Product | None = None,
) -> Solution:
    """Solve ``A x = b`` for a positive definite ``A`` up to a relative residual.

    Args:
        start: warm start: its best multiple is the initial guess, at the cost of one product.
        preconditioner: ``v ↦ M v`` for a positive definite ``M ≈ A⁻¹``.

    Raises:
        CurvatureError: if a direction has ``dᵀ A d ≤ 0``, or the tolerance is not reached.
    """
    x, r, size, products = torch.zeros_like(b), b.clone(), float(b.norm()), 0
    if size == 0.0:
        return Solution(x, 0, 0.0)
    if start is not None and float(start.norm()) > 0.0:
        a_start, products = product(start), 1
        curvature = start @ a_start
        _check_positive(float(curvature), start, products)
        step = (start @ b) / curvature
        x, r = step * start, b - step * a_start
    residual = float(r.norm()) / size
    z = r if preconditioner is None else preconditioner(r)
    d, rz = z.clone(), r @ z
    while residual > tolerance:
        if products >= max_iterations:
            raise CurvatureError(
                f"conjugate gradients left a relative residual of {residual:.2g} after {max_iterations} products "
                f"({tolerance:g} was requested); use a larger damping or more iterations"
            )
        a_d = product(d)
        products += 1
        curvature = d @ a_d
        step = rz / curvature
        x, r = x + step * d, r - step * a_d
        z = r if preconditioner is None else preconditioner(r)
        new = r @ z
        following, rz = z + (new / rz) * d, new
        norm, along = torch.stack([r.norm(), curvature]).tolist()  # the only transfer of an iteration
        _check_positive(along, d, products)
        d, residual = following, norm / size
        LOG.info("conjugate gradients: %d product(s), residual %.2g of %.2g", products, residual, tolerance)
    return Solution(x, products, residual)


def _check_positive(curvature: float, d: Tensor, products: int) -> None:
    if not curvature > 0:
        raise CurvatureError(
            f"negative curvature ({curvature / float(d @ d):.3g}) after {products} product(s): the matrix is not "
            "positive definite here; use curvature='gauss-newton', or a larger damping"
        )


def nystrom_preconditioner(product: Product, like: Tensor, rank: int, shift: float, seed: int = 0) -> Product:
    """Return ``v ↦ M v``, ``M ≈ (G + shift I)⁻¹``, from ``rank`` products with random vectors (Frangella et al. 2023).

    With Ω orthonormal, ``G ≈ (GΩ)(ΩᵀGΩ)⁻¹(GΩ)ᵀ = U diag(λ) Uᵀ``, and for the smallest eigenvalue ``λ_k`` in it

        M = (λ_k + shift) U diag(1 / (λ + shift)) Uᵀ + I − U Uᵀ .

    G of a few labeled nodes has low rank but dense eigenvectors: removing its large eigenvalues helps, whereas a
    diagonal preconditioner makes convergence worse.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(like.numel(), min(rank, like.numel()), generator=generator, dtype=torch.float32)
    omega = torch.linalg.qr(drawn.to(like.device, torch.float64)).Q.to(like)
    sketch = torch.stack([product(column) for column in omega.T.contiguous()], dim=1)
    vectors, inside = _positive(omega.T @ sketch)
    root = sketch @ (vectors * inside.rsqrt()).to(like)
    turn, large = _positive(root.T @ root)
    if not large.numel():
        return lambda vector: vector
    basis = root @ (turn * large.rsqrt()).to(like)
    weight = ((float(large[0]) + shift) / (large + shift) - 1.0).to(like)
    return lambda vector: vector + basis @ (weight * (basis.T @ vector))


def _positive(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the eigenvectors and eigenvalues above rounding errors, in ascending order."""
    values, vectors = torch.linalg.eigh(matrix.double())
    large = values > 10 * torch.finfo(matrix.dtype).eps * values.abs().sum()
    return vectors[:, large], values[large]
