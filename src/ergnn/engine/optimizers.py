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
    alike = models == 1 or kind == "sgd" or params[0].device.type != "cpu"
    made = base if alike else type(base.__name__, (_ModelByModel, base), {"models": models})
    return made(params, lr=lr, weight_decay=weight_decay, fused=True)


class _ModelByModel:
    """Pass the parts of a stacked parameter to a fused step one by one if they do not fill whole SIMD vectors.

    Otherwise, whether an entry is processed in a full vector would depend on the number of models.
    """

    models: int

    def _init_group(self, group: dict[str, Any], *lists: list[Tensor]) -> Any:
        found = super()._init_group(group, *lists)  # type: ignore[misc]
        whole = [list(values) for values in lists]  # parameters, gradients, moments, steps; unused lists are empty
        for values in lists:
            values.clear()
        for i, param in enumerate(whole[0]):
            for values, of_all in zip(lists, whole, strict=True):
                if of_all:
                    values.extend(self._parts(param, of_all[i]))
        return found

    def _parts(self, param: Tensor, value: Tensor) -> list[Tensor]:
        if param.numel() // self.models * param.element_size() % VECTOR == 0:
            return [value]
        if value.dim() == 0:  # step count, which the optimizer increments once per list entry
            return [value, *(value.clone() for _ in range(self.models - 1))]
        return list(value.split(value.size(0) // self.models))
