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
    preconditioner: Product | None = None,
) -> Solution:
    """Solve ``A x = b`` for a positive definite ``A`` up to a relative residual.

    Args:
        preconditioner: ``v ↦ M v`` for a positive definite ``M ≈ A⁻¹``.

    Raises:
        CurvatureError: if a direction has ``dᵀ A d ≤ 0``, or the tolerance is not reached.
    """
    on_rows = None if preconditioner is None else lambda rows: preconditioner(rows[0]).unsqueeze(0)
    return solve_together(
        lambda rows: product(rows[0]).unsqueeze(0), b.unsqueeze(0), tolerance, max_iterations, on_rows
    )[0]


def solve_together(
    product: Product, b: Tensor, tolerance: float, max_iterations: int, preconditioner: Product | None = None
) -> list[Solution]:
    """Solve several systems, one for each row of ``b``; the functions are of all rows at once.

    Conjugate gradients have a step size per row. See :func:`conjugate_gradients`.
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
                f"negative curvature after {max(counts)} product(s): the matrix is not positive definite here; use "
                "curvature='gauss-newton', or a larger damping"
            )
        residuals = [value if on else old for on, value, old in zip(active, norms, residuals, strict=True)]
        d, rz = z + torch.where(moving, new / rz, 0.0).to(b).unsqueeze(1) * d, new
        LOG.info("conjugate gradients: %d product(s), residual %.2g of %.2g", max(counts), max(residuals), tolerance)
    return [Solution(*solution) for solution in zip(x, counts, residuals, strict=True)]


def _products(a: Tensor, b: Tensor) -> Tensor:
    return (a.double() * b.double()).sum(1)


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
