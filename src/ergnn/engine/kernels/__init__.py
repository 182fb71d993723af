"""Attention and sums over the neighbors in a large graph, without tensors that have an entry per edge.

Layers call :mod:`.attention` and :mod:`.sums`. On a GPU, these run Triton kernels (:mod:`.triton_attention`,
:mod:`.triton_sums`, imported only there). On a CPU, and for dtypes other than float32, they run plain PyTorch on chunks
of edges (:mod:`.torch_attention`), with the same dropout bit for bit.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

ON_CPU = False
"""Whether to run the kernels on CPU tensors too; for tests with ``TRITON_INTERPRET=1``."""


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def runs_on_triton(h: Tensor) -> bool:
    """Return whether to use the Triton kernels: for float32 on a GPU, if Triton is installed (as with CUDA wheels)."""
    return (h.is_cuda or ON_CPU) and h.dtype == torch.float32 and _has_triton()
