"""The dropout of one forward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ergnn.engine.dropout import keep_scale
from ergnn.engine.features import DenseFeatures, Features, SparseFeatures
from ergnn.engine.kernels.masks import dropped


class DropoutStream:
    """Hands out one dropout mask a site, in the order in which the forward pass asks.

    Args:
        keys: ``[sites, models]``, or None in evaluation, when nothing is dropped.
    """

    def __init__(self, keys: Tensor | None) -> None:
        self.keys = keys
        self._site = 0

    def key(self, p: float) -> Tensor | None:
        """The next site's keys, a model each; None where nothing is dropped."""
        if self.keys is None or p == 0.0:
            return None
        self._site += 1
        return self.keys[self._site - 1]

    def __call__(self, h: Tensor, p: float, position: Tensor | None, model: Tensor | None) -> Tensor:
        """``h`` with entries dropped; row i belongs to ``model[i]`` and is its ``position[i]``-th.

        Without these, rows are those of one model in their order.
        """
        key = self.key(p)
        if key is None:
            return h
        if position is None or model is None:
            return dropped(h, key, p)
        key = key if key.numel() == 1 else key.index_select(0, model)
        if h.dim() == 2:
            column = torch.arange(h.size(1), dtype=torch.int32, device=h.device)
            position, key = position.unsqueeze(1) * h.size(1) + column, key.unsqueeze(1)
        return h * keep_scale(position, key, p, h.dtype)

    def input(self, h: Tensor | Features, p: float, block: Any) -> Tensor | Features:
        """Dropout on what a layer reads: activations, or features in either form."""
        if isinstance(h, SparseFeatures):
            return SparseFeatures(h.pattern, self(h.value, p, h.position, h.model), h.position, h.model)
        if isinstance(h, DenseFeatures):
            return DenseFeatures(self(h.value, p, block.src_position, block.src_model))
        return self(h, p, block.src_position, block.src_model)
