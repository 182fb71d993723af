"""The quadratic program of gradient episodic memory."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def nonnegative_minimum(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Minimize ``½ vᵀPv + qᵀv`` over v ≥ 0 exactly, for a positive semi-definite P with q in its range.

    Active-set method (Bro and De Jong, 1997); at the minimum, ``Pv + q ≥ 0``, and ``= 0`` where v > 0.
    """
    v, free = np.zeros_like(q), np.zeros(len(q), dtype=bool)
    for _ in range(10 * len(q) + 10):
        slope = np.where(free, np.inf, p @ v + q)
        if not len(q) or slope.min() >= -1e-10 * np.abs(q).max():
            return v
        free[slope.argmin()] = True
        while free.any():
            trial = np.zeros_like(v)
            trial[free] = np.linalg.lstsq(p[np.ix_(free, free)], -q[free], rcond=None)[0]
            blocked = free & (trial <= 0)
            if not blocked.any():
                break
            step = (v[blocked] / (v[blocked] - trial[blocked] + 1e-300)).min()
            v = v + step * (trial - v)
            free &= v > 1e-14 * np.abs(v).max(initial=0.0)
            v[~free] = 0.0
        v = np.where(free, trial, 0.0)
    return v


def project(gradient: Tensor, memories: Tensor, margin: float = 0.0) -> Tensor:
    """Return the vector closest to ``gradient`` with nonnegative products with all rows of ``memories``.

    With g the gradient and G the memories, the dual of ``min ½‖z − g‖² s.t. Gz ≥ 0`` has one variable per task:

        min_{v ≥ γ} ½ vᵀGGᵀv + gᵀGᵀv,    z = Gᵀv + g .

    γ is the margin, a lower bound of v as in the authors' code; ``Gz ≥ 0`` still holds. A feasible g is not changed.
    """
    products = memories @ gradient
    if bool((products >= 0).all()):
        return gradient
    v = dual_variables(memories @ memories.T, products, margin)
    return gradient + torch.from_numpy(v).to(gradient) @ memories


def dual_variables(gram: Tensor, products: Tensor, margin: float) -> np.ndarray:
    """Return v of :func:`project`, from ``GGᵀ`` and ``Gg``."""
    p, q = gram.double().cpu().numpy(), products.double().cpu().numpy()
    return margin + nonnegative_minimum(p, q + margin * p.sum(1))
