"""Rows in slots: which set of parameters each row is computed with, and products with all of them at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

VECTOR = 64
"""Bytes that a CPU processes at a time; the rest at a tensor's end may be rounded differently."""


class Rows:
    """Which *slot* each row belongs to: the set of parameters that it is computed with.

    A slot is a model in a batch of models, or one of the heads of one. The last bits of a sum depend on its order, and
    training tells two orders apart in the end; so on a CPU, products and gradients are added up for each model as it
    would do it alone, and every bit is the same.

    Args:
        slot: ``[rows]``; those of a model follow one another.
        slots: how many there are.
        models: how many models the slots are shared out to, evenly.
    """

    def __init__(self, slot: Tensor, slots: int, models: int = 1) -> None:
        self.slot, self.slots = slot, slots
        self.count = int(slot.numel())
        self.parts: list[Rows] = []
        self.sizes = [self.count]
        if models > 1 and slot.device.type == "cpu":
            each = slots // models
            self.sizes = torch.bincount(slot // each, minlength=models).tolist()
            self.parts = [Rows(part - i * each, each) for i, part in enumerate(slot.split(self.sizes))]
        elif slots > 1:
            order = torch.argsort(slot, stable=True)
            size = torch.bincount(slot, minlength=slots)
            self._size = int(size.max()) if self.count else 0
            rank = torch.arange(self.count, device=slot.device) - (size.cumsum(0) - size)[slot[order]]
            self._place = torch.empty_like(order).index_copy(0, order, rank + slot[order] * self._size)
            self._pads = slots * self._size <= 2 * self.count
            if not self._pads:  # one large slot among many small ones
                self._largest = int(size.argmax())
                large = slot == self._largest
                self._split = torch.cat([large.nonzero().flatten(), (~large).nonzero().flatten()])
                self._joined = torch.empty_like(order).index_copy(
                    0, self._split, torch.arange(self.count, device=slot.device)
                )

    def matmul(self, h: Tensor, weight: Tensor) -> Tensor:
        """Each row times the matrix of its slot; ``weight`` is ``[slots, in, out]``."""
        if self.parts:
            own = zip(self.parts, h.split(self.sizes), weight.split(self.parts[0].slots), strict=True)
            return torch.cat([part.matmul(a, w) for part, a, w in own])
        if self.slots == 1:
            return h @ weight[0]
        if not self._pads:
            large, small = h.index_select(0, self._split).split([self._size, self.count - self._size])
            each = weight.index_select(0, self.slot.index_select(0, self._split[self._size :]))
            out = torch.cat([large @ weight[self._largest], (small.unsqueeze(2) * each).sum(1)])
            return out.index_select(0, self._joined)
        padded = h.new_zeros(self.slots * self._size, h.size(1)).index_copy(0, self._place, h)
        out = torch.bmm(padded.view(self.slots, self._size, h.size(1)), weight)
        return out.flatten(0, 1).index_select(0, self._place)

    def each(self, parameter: Tensor) -> Tensor:
        """The entry of ``parameter`` (``[slots, …]``) for each row (on a GPU, one slot's is left to broadcast)."""
        alone = self.slots == 1 and parameter.device.type != "cpu"
        return parameter if alone else parameter.index_select(0, self.slot)

    def apply(self, function: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
        """An elementwise function, model by model where rows do not fill whole vectors (rounding may differ there)."""
        if not self.parts or h.size(1) * h.element_size() % VECTOR == 0:
            return function(h)
        return torch.cat([function(part) for part in h.split(self.sizes)])


class SortedRows(Rows):
    """Rows sorted by slot, with slots of very different sizes: one product per slot, summed in a fixed order."""

    def __init__(self, slot: Tensor, slots: int) -> None:
        self.slot, self.slots, self.count = slot, slots, int(slot.numel())
        self.parts = []
        self.sizes = torch.bincount(slot, minlength=slots).tolist()

    def matmul(self, h: Tensor, weight: Tensor) -> Tensor:
        if self.slots == 1:
            return h @ weight[0]
        return torch.cat([part @ matrix for part, matrix in zip(h.split(self.sizes), weight, strict=True)])

    def each(self, parameter: Tensor) -> Tensor:
        if self.slots == 1:
            return parameter
        runs = zip(parameter.split(1), self.sizes, strict=True)
        return torch.cat([value.expand(size, *value.shape[1:]) for value, size in runs])


class GatheredRows(Rows):
    """Rows in any order; slots are looked up by a product, so that gradients are summed in a fixed order."""

    def __init__(self, slot: Tensor, slots: int) -> None:
        super().__init__(slot, slots)
        self._one = torch.nn.functional.one_hot(slot, slots)

    def each(self, parameter: Tensor) -> Tensor:
        if self.slots == 1:
            return parameter
        return (self._one.to(parameter.dtype) @ parameter.flatten(1)).view(-1, *parameter.shape[1:])
