"""Several models at once: products of rows with different sets of parameters (slots) in one operation, and optimizers.

Each model is updated exactly as it would be alone, on a CPU bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

ENTRIES = 1 << 27
"""Maximum number of entries of the copies of matrices, one per row, that are made at a time."""
VECTOR = 64
"""SIMD vector size of a CPU in bytes; the remainder at the end of a tensor may be rounded differently."""


class SlotRows:
    """The *slot* of each row: the set of parameters that the row is computed with.

    A slot is one of several stacked models, or a head of a model. The last bits of a sum depend on its order, and
    training amplifies such differences. On a CPU, products and gradients are therefore summed per model in the same
    order as for a single model, which gives the same bits.

    Args:
        slot: ``[rows]``; the rows of a model are contiguous.
        slots: number of slots.
        models: number of models, which have equal numbers of slots.
    """

    def __init__(self, slot: Tensor, slots: int, models: int = 1) -> None:
        self.slot, self.slots = slot, slots
        self.count = int(slot.numel())
        self.per_model: list[SlotRows] = []
        self.sizes = [self.count]
        if models > 1 and slot.device.type == "cpu":
            per_model = slots // models
            self.sizes = torch.bincount(slot // per_model, minlength=models).tolist()
            of_models = enumerate(slot.split(self.sizes))
            self.per_model = [SlotRows(rows - model * per_model, per_model) for model, rows in of_models]
        elif slots > 1:
            order = torch.argsort(slot, stable=True)
            size = torch.bincount(slot, minlength=slots)
            self._size = int(size.max()) if self.count else 0
            rank = torch.arange(self.count, device=slot.device) - (size.cumsum(0) - size)[slot[order]]
            self._padded_row = torch.empty_like(order).index_copy(0, order, rank + slot[order] * self._size)
            self._use_padding = slots * self._size <= 2 * self.count
            if not self._use_padding:  # one large slot among many small ones
                self._largest = int(size.argmax())
                self._large_first = torch.argsort(slot != self._largest, stable=True)
                self._original_order = torch.argsort(self._large_first)

    def starts(self) -> Tensor:
        """Return the first row of each slot, and the number of rows; rows must be sorted by slot."""
        return torch.searchsorted(self.slot, torch.arange(self.slots + 1, device=self.slot.device))

    @property
    def largest(self) -> int:
        """The maximum number of rows of a slot."""
        return max(self.sizes) if self.per_model or self.slots == 1 else self._size

    def matmul(self, h: Tensor, weight: Tensor) -> Tensor:
        """Multiply each row by the matrix of its slot; ``weight`` is ``[slots, in, out]``."""
        if self.per_model:
            models = zip(self.per_model, h.split(self.sizes), weight.split(self.per_model[0].slots), strict=True)
            return torch.cat([rows.matmul(a, w) for rows, a, w in models])
        if self.slots == 1:
            return h @ weight[0]
        if not self._use_padding:
            large, small = h.index_select(0, self._large_first).split([self._size, self.count - self._size])
            slot = self.slot.index_select(0, self._large_first[self._size :])
            most = max(1, ENTRIES // max(1, weight[0].numel()))
            pairs = zip(small.split(most), slot.split(most), strict=True)
            products = [(rows.unsqueeze(2) * weight.index_select(0, slots)).sum(1) for rows, slots in pairs]
            return torch.cat([large @ weight[self._largest], *products]).index_select(0, self._original_order)
        padded = h.new_zeros(self.slots * self._size, h.size(1)).index_copy(0, self._padded_row, h)
        out = torch.bmm(padded.view(self.slots, self._size, h.size(1)), weight)
        return out.flatten(0, 1).index_select(0, self._padded_row)

    def each(self, parameter: Tensor) -> Tensor:
        """Return the entry of ``parameter``, ``[slots, …]``, for each row (on a GPU, one slot is left to broadcast)."""
        broadcasts = self.slots == 1 and parameter.device.type != "cpu"
        return parameter if broadcasts else parameter.index_select(0, self.slot)

    def apply(self, function: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
        """Apply an elementwise function, model by model if rows do not fill SIMD vectors, where rounding may differ."""
        if not self.per_model or h.size(1) * h.element_size() % VECTOR == 0:
            return function(h)
        return torch.cat([function(rows) for rows in h.split(self.sizes)])


class SortedRows(SlotRows):
    """Rows sorted by slot, for slots of very different sizes: one product per slot, summed in a fixed order."""

    def __init__(self, slot: Tensor, slots: int) -> None:
        self.slot, self.slots, self.count = slot, slots, int(slot.numel())
        self.per_model = []
        self.sizes = torch.bincount(slot, minlength=slots).tolist()

    def matmul(self, h: Tensor, weight: Tensor) -> Tensor:
        if self.slots == 1:
            return h @ weight[0]
        return torch.cat([rows @ matrix for rows, matrix in zip(h.split(self.sizes), weight, strict=True)])

    def each(self, parameter: Tensor) -> Tensor:
        if self.slots == 1:
            return parameter
        runs = zip(parameter.split(1), self.sizes, strict=True)
        return torch.cat([value.expand(size, *value.shape[1:]) for value, size in runs])


class GatheredRows(SlotRows):
    """Rows in any order; a product with a one-hot matrix selects slots, so gradients are summed in a fixed order."""

    def __init__(self, slot: Tensor, slots: int) -> None:
        super().__init__(slot, slots)
        self._one_hot = torch.nn.functional.one_hot(slot, slots)

    def each(self, parameter: Tensor) -> Tensor:
        if self.slots == 1:
            return parameter
        return (self._one_hot.to(parameter.dtype) @ parameter.flatten(1)).view(-1, *parameter.shape[1:])


def model_positions(slot: Tensor, per_model: int, models: int) -> Tensor:
    """Return the int32 position of each row within its model; the rows of a model are contiguous."""
    row = torch.arange(slot.numel(), dtype=torch.int32, device=slot.device)
    if models == 1:
        return row
    model = slot // per_model
    count = torch.bincount(model, minlength=models)
    return row - (count.cumsum(0) - count).int().index_select(0, model)


OPTIMIZERS: dict[str, Any] = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def make_optimizer(
    kind: str, params: list[Tensor], models: int, lr: float, weight_decay: float
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
