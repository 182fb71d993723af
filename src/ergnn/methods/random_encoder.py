"""A random encoder that follows from a seed."""

from __future__ import annotations

import torch
from torch import Tensor


class RandomEncoder:
    """Gaussian matrix W, drawn by seed on the CPU; the latest one is cached, as drawing takes longer than using it.

    Args:
        salt: separates the matrices of different methods with the same seed.
        dtype: type to draw in.
    """

    def __init__(self, salt: int, dtype: torch.dtype = torch.float32) -> None:
        self.salt, self.dtype = salt, dtype
        self._latest: tuple[tuple[int, int, int], Tensor] | None = None

    def __call__(self, seed: int, rows: int, columns: int, device: torch.device) -> Tensor:
        """Return W, ``[rows, columns]``."""
        key = (seed, rows, columns)
        if self._latest is None or self._latest[0] != key or self._latest[1].device != device:
            generator = torch.Generator().manual_seed((seed * 1_000_003 + self.salt) % 2**63)
            drawn = torch.randn(rows, columns, generator=generator, dtype=self.dtype)
            self._latest = key, drawn.to(device)
        return self._latest[1]

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_latest": None}  # copies draw it again
