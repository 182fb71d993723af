"""A random encoder that follows from a seed."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=2)  # drawing takes longer than using it
def random_encoder(seed: int, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a Gaussian matrix of a shape, drawn by seed on the CPU."""
    generator = torch.Generator().manual_seed(seed % 2**63)
    return torch.randn(*shape, generator=generator, dtype=dtype).to(device)
