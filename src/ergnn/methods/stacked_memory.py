"""Gradients of remembered nodes for models that are trained side by side on a GPU, where few large steps are faster."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.objective import FieldObjective
from ergnn.methods.gradients import flatten_models


class StackedMemory:
    """The remembered examples of several models in one objective."""

    def __init__(self, memories: Sequence[FieldObjective]) -> None:
        self.sizes = [len(memory.examples[0]) for memory in memories]
        models, examples = [memory.models[0] for memory in memories], [memory.examples[0] for memory in memories]
        self.objective = FieldObjective(models, examples, memories[0].heads)
        sizes = self.objective.targets.new_tensor(self.sizes)
        self._starts = (sizes.cumsum(0) - sizes).tolist()
        self._all = (1.0 / sizes).repeat_interleave(sizes)

    def gradients(self, params: ParamDict, chosen: Sequence[Tensor | None] = ()) -> Tensor:
        """Return the gradient of each model's mean loss ``[models, parameters]``, in evaluation mode.

        Args:
            chosen: for each model, positions of the examples to average over, None for all; by default all.
        """
        weights = self._all
        if any(index is not None for index in chosen):
            weights = torch.zeros_like(self._all)
            for start, size, index in zip(self._starts, self.sizes, chosen, strict=True):
                used = torch.arange(size, device=weights.device) if index is None else index
                weights[start + used] = 1.0 / used.numel()
        total = (weights * self.objective.losses(params)).sum()
        values = list(params.values())
        grads = torch.autograd.grad(total, values, allow_unused=True)
        known = [torch.zeros_like(v) if g is None else g for g, v in zip(grads, values, strict=True)]
        return flatten_models(known, len(self.sizes))


def stack_memories(memories: Sequence[Objective]) -> StackedMemory | None:
    """Return the memories of all models as one; None if they are not on a GPU, or cannot be stacked."""
    fields = [memory for memory in memories if isinstance(memory, FieldObjective)]
    on_gpu = all(memory.targets.is_cuda for memory in memories)
    return StackedMemory(fields) if on_gpu and len(fields) == len(memories) else None
