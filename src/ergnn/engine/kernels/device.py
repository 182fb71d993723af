"""Where the Triton kernels run."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

ON_CPU = False
"""Run the kernels on CPU tensors too: with TRITON_INTERPRET=1, in tests."""


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def runs_on_triton(h: Tensor) -> bool:
    """Whether a kernel takes this tensor: float32 on a GPU, and Triton is there (it comes with torch for CUDA)."""
    return (h.is_cuda or ON_CPU) and h.dtype == torch.float32 and _has_triton()
