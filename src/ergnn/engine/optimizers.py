"""Optimizers for stacked parameters: each model is updated exactly as it would be alone, bit for bit."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ergnn.engine.slots import VECTOR

OPTIMIZERS: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def make_optimizer(
    kind: str, params: list[Tensor], *, models: int, lr: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Create a fused optimizer by name, for parameters ``[models · …, …]`` of stacked models."""
    base = OPTIMIZERS[kind]
    exact = models == 1 or kind == "sgd" or params[0].device.type != "cpu"  # rounding does not depend on stacking
    optimizer = base if exact else type(base.__name__, (_ModelByModel, base), {"models": models})
    return optimizer(params, lr=lr, weight_decay=weight_decay, fused=True)


class _ModelByModel:
    """Pass the parts of a stacked parameter to a fused step one by one if they do not fill whole SIMD vectors.

    Otherwise, whether an entry is processed in a full vector would depend on the number of models.
    """

    models: int

    def _init_group(self, group: dict[str, Any], *lists: list[Tensor]) -> Any:
        result = super()._init_group(group, *lists)  # type: ignore[misc]
        stacked = [list(values) for values in lists]  # parameters, gradients, moments, steps; unused lists are empty
        for values in lists:
            values.clear()
        for i, param in enumerate(stacked[0]):
            for values, originals in zip(lists, stacked, strict=True):
                if originals:
                    values.extend(self._parts(param, originals[i]))
        return result

    def _parts(self, param: Tensor, value: Tensor) -> list[Tensor]:
        if param.numel() // self.models * param.element_size() % VECTOR == 0:
            return [value]
        if value.dim() == 0:  # step count, which the optimizer increments once per list entry
            return [value, *(value.clone() for _ in range(self.models - 1))]
        return list(value.split(value.size(0) // self.models))
