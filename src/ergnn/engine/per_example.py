"""Sums over the gradients of single examples, for chunks of examples at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from ergnn.engine.features import DenseFeatures
from ergnn.engine.losses import Entry, ParamDict
from ergnn.nn.examples import Examples

if TYPE_CHECKING:
    from ergnn.engine.objective import FieldObjective

ENTRIES = 1 << 23
"""Maximum number of gradient entries per chunk."""
EXAMPLES = 64
"""Maximum number of examples per chunk."""
GPU_CHUNKS = 16
"""Chunks are up to this many times larger on a GPU."""
GPU_DENSE_ENTRIES = 1 << 28
"""Maximum number of dense feature entries per larger chunk."""


def gradient_sums(
    stack: Callable[[Examples], FieldObjective], examples: Examples, params: ParamDict, entry: Entry
) -> ParamDict:
    """Compute ``Σ_i entry(∇ℓ_i)``; see :meth:`ergnn.engine.losses.Objective.gradient_sums`.

    Args:
        stack: returns the objective of some examples with one stacked model per example.
        params: parameters of one model.
    """
    total = {name: torch.zeros_like(value) for name, value in params.items()}
    positions = torch.arange(len(examples), device=examples.nodes.device)
    smallest = max(1, min(EXAMPLES, ENTRIES // sum(value.numel() for value in params.values())))
    largest = smallest * (GPU_CHUNKS if positions.is_cuda else 1)
    start, count = 0, largest if examples.graph.is_sparse else smallest
    while start < len(examples):
        part = stack(examples[positions[start : start + count]])
        models = len(part.models)
        copies = {name: value.detach().repeat(models, *[1] * (value.dim() - 1)) for name, value in params.items()}
        copies = {name: value.requires_grad_() for name, value in copies.items()}
        grads = torch.autograd.grad(part.losses(copies).sum(), list(copies.values()), allow_unused=True)
        for name, grad in zip(copies, grads, strict=True):
            if grad is not None:
                total[name] += entry(grad.view(models, *total[name].shape)).sum(0)
        start += models
        if not part.linked:
            dense = part.field.features.value.numel() if isinstance(part.field.features, DenseFeatures) else 0
            count = max(smallest, min(largest, GPU_DENSE_ENTRIES * models // max(dense, 1)))
    return total
