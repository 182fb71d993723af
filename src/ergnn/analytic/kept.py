"""Rows of φ that are stored without their nodes: all of them, or a few centroids per class."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MAX_ITERATIONS = 50


class KeptRows:
    """Rows of φ, their labels, and the number of examples that each represents, per feature map."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[Tensor, Tensor, Tensor]] = {}

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def nbytes(self) -> int:
        return sum(part.numel() * part.element_size() for parts in self._parts.values() for part in parts)

    def get(self, name: str) -> tuple[Tensor, Tensor, Tensor] | None:
        """Return the rows, labels and counts of a feature map."""
        return self._parts.get(name)

    def add(self, name: str, rows: Tensor, labels: Tensor) -> None:
        """Store more rows, one example each."""
        counts = torch.ones(labels.numel(), dtype=torch.float64, device=labels.device)
        new = (rows, labels, counts)
        old = self._parts.get(name)
        self._parts[name] = new if old is None else tuple(map(torch.cat, zip(old, new, strict=True)))  # type: ignore[assignment]

    def compress(self, per_class: int, seed: int) -> None:
        """Replace the rows of each class with at most ``per_class`` centroids, in float32."""
        for name, (rows, labels, counts) in self._parts.items():
            parts = []
            for c in labels.unique():
                own = labels == c
                generator = torch.Generator().manual_seed((seed * 1_000_003 + int(c) * 7919 + 41) % 2**63)
                centers, sizes = k_means(rows[own].double(), counts[own], per_class, generator)
                parts.append((centers.float(), c.expand(sizes.numel()), sizes))
            self._parts[name] = tuple(map(torch.cat, zip(*parts, strict=True)))  # type: ignore[assignment]

    def state_dict(self) -> dict[str, Any]:
        return {name: [part.clone() for part in parts] for name, parts in self._parts.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._parts = {name: tuple(parts) for name, parts in state.items()}


def k_means(rows: Tensor, counts: Tensor, k: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Run Lloyd's algorithm, initialized by k-means++.

    Args:
        rows: ``[n, width]``.
        counts: number of examples that each row represents.
        k: number of centroids; if there are at most k rows, they are returned unchanged.
        generator: CPU generator of the seeds.

    Returns:
        The centroids, and the number of examples that each represents.
    """
    if rows.size(0) <= k:
        return rows, counts
    centers = rows[_seeds(rows, counts, k, generator)]
    nearest = torch.full_like(counts, -1, dtype=torch.long)
    for _ in range(MAX_ITERATIONS):
        found = torch.cdist(rows, centers).argmin(1)
        if torch.equal(found, nearest):
            break
        nearest = found
        total = counts.new_zeros(centers.size(0)).index_add_(0, nearest, counts)
        used = total > 0
        sums = torch.zeros_like(centers).index_add_(0, nearest, rows * counts[:, None])
        centers = torch.where(used[:, None], sums / total.clamp(min=1e-300)[:, None], centers)
    total = counts.new_zeros(centers.size(0)).index_add_(0, nearest, counts)
    return centers[total > 0], total[total > 0]


def _seeds(rows: Tensor, counts: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """Draw k-means++ seeds (Arthur and Vassilvitskii, 2007), each by its squared distance to the earlier ones."""
    chosen = [int(torch.multinomial(counts.cpu(), 1, generator=generator))]
    distance = torch.full_like(counts, float("inf"))
    while len(chosen) < k:
        distance = torch.minimum(distance, (rows - rows[chosen[-1]]).square().sum(1))
        chance = (counts * distance).cpu()
        if not float(chance.sum()) > 0:
            break
        chosen.append(int(torch.multinomial(chance, 1, generator=generator)))
    return torch.tensor(chosen, device=rows.device)
