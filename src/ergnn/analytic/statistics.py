"""Statistics of φ per class, from which a ridge head is solved without storing examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ergnn.analytic.ridge import DEFAULT_TEMPERATURE, RidgeSolution

ROW_BLOCK = 1 << 10
"""Rows to add at a time."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """Number and mean of the rows of a class, and their scatter ``Σ (φ − μ)(φ − μ)ᵀ ≈ BᵀB + diag d``.

    The rows of B are the leading principal directions, times their singular values; they are approximate if rows are
    added in several steps. d is the part of the scatter's diagonal that BᵀB does not contain, so the diagonal is exact.

    Args:
        size: number of rows.
        mean: μ, ``[width]``.
        directions: B, ``[k, width]``.
        rest: d, ``[width]``.
    """

    size: int
    mean: Tensor
    directions: Tensor
    rest: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of the label, the number of rows, and the parts that are stored."""
        stored = (self.mean, self.directions, self.rest)
        return 16 + sum(each.numel() * each.element_size() for each in stored)

    def add(self, rows: Tensor, per_class: int) -> Statistics:
        """Add rows; at most ``per_class`` rows are stored: the mean, d, and the directions, in this order."""
        mean, size = rows.mean(0), self.size + rows.size(0)
        shift = mean - self.mean.to(mean) if self.size else torch.zeros_like(mean)
        between = (self.size * rows.size(0) / size) ** 0.5 * shift
        scatter = torch.cat([self.directions.to(rows), rows - mean, between[None]])
        directions = leading(scatter, max(0, per_class - 2)).float()
        diagonal = scatter.square().sum(0)
        diagonal[: self.rest.numel()] += self.rest.to(rows)
        rest = (diagonal - directions.double().square().sum(0)).clamp_(min=0).float()
        mean = mean - self.size / size * shift
        return Statistics(size, mean.float(), directions, rest if per_class > 1 else rest.new_empty(0))


def leading(rows: Tensor, count: int) -> Tensor:
    """Return at most ``count`` rows B such that ``BᵀB`` is the best approximation of ``rowsᵀ rows``: ``s_i v_iᵀ``."""
    wide = rows.size(0) <= rows.size(1)
    values, vectors = torch.linalg.eigh(rows @ rows.T if wide else rows.T @ rows)
    vectors = vectors[:, values > 1e-12 * values[-1]].flip(1)[:, :count]
    return vectors.T @ rows if wide else values.flip(0)[: vectors.size(1), None].sqrt() * vectors.T


class ClassStatistics(dict[int, Statistics]):
    """:class:`Statistics` of each class."""

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self.values())

    def add(self, rows: Tensor, labels: Tensor, per_class: int) -> None:
        """Add labeled rows, and store at most ``per_class`` rows for each class."""
        for c in labels.unique().tolist():
            for part in rows[labels == c].double().split(ROW_BLOCK):
                empty = Statistics(0, part[0] * 0, part[:0], part[0] * 0)
                self[c] = self.get(c, empty).add(part, per_class)

    def solve(self, lam: float, device: torch.device) -> RidgeSolution:
        """Solve for the ridge head of all rows added so far, with this approximation of their scatter.

        With ``P = [√(w_c n_c) μ_c, √w_c B_c]`` over the classes and ``D = λI + Σ w_c diag d_c``, it is
        ``W = (PᵀP + D)⁻¹ Σ w_c n_c μ_c e_cᵀ``, where ``w_c ∝ n_c^-½`` as in :class:`Targets`. There are no rows to
        leave out, so τ is :data:`DEFAULT_TEMPERATURE`.
        """
        classes, stored = torch.tensor(sorted(self), device=device), [self[c] for c in sorted(self)]
        sizes = torch.tensor([each.size for each in stored], dtype=torch.float64, device=device)
        w = sizes.sum() / sizes.sqrt().sum() * sizes.rsqrt()
        parts, targets, d = [], [], torch.full_like(stored[0].mean, lam, dtype=torch.float64, device=device)
        for each, weight, own in zip(stored, w, (w * sizes).sqrt().diag(), strict=True):
            parts += [(weight * each.size).sqrt() * each.mean.to(d)[None], weight.sqrt() * each.directions.to(d)]
            targets += [own[None], own.new_zeros(each.directions.size(0), own.numel())]
            if each.rest.numel():
                d += weight * each.rest.to(d)
        root, t = d.sqrt(), torch.cat(targets)
        p = torch.cat(parts) / root
        dual = p.size(0) <= p.size(1)
        gram = p @ p.T if dual else p.T @ p
        gram.diagonal().add_(1)
        factor = torch.linalg.cholesky(gram)
        solved = p.T @ torch.cholesky_solve(t, factor) if dual else torch.cholesky_solve(p.T @ t, factor)
        return RidgeSolution(
            solved / root[:, None], classes, lam, DEFAULT_TEMPERATURE, solved.new_empty(0, w.numel()), None
        )

    def state_dict(self) -> dict[str, Any]:
        return {str(c): dict(vars(each)) for c, each in self.items()}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> ClassStatistics:
        return cls({int(c): Statistics(**each) for c, each in state.items()})
