"""The dropout of one forward pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ergnn.engine.dropout import dropped, keep_rows, keep_scale
from ergnn.engine.features import DenseFeatures, DroppedFeatures, InputFeatures, SparseFeatures
from ergnn.engine.kernels.device import runs_on_triton


class DropoutStream:
    """Provide one dropout mask per site, in the order of the forward pass.

    Args:
        keys: ``[sites, models]``; None in evaluation mode, which drops nothing.
    """

    def __init__(self, keys: Tensor | None) -> None:
        self.keys = keys
        self._site = 0

    def key(self, p: float) -> Tensor | None:
        """Return the keys of the next site, one per model; None if nothing is dropped."""
        if self.keys is None or p == 0.0:
            return None
        self._site += 1
        return self.keys[self._site - 1]

    def __call__(
        self, h: Tensor, p: float, position: Tensor | None, model: Tensor | None, constant: bool = False
    ) -> Tensor:
        """Drop entries of ``h``; row i is row ``position[i]`` of model ``model[i]``.

        If they are None, ``h`` has the rows of one model in order. If ``h`` is constant, there are no derivatives.
        """
        key = self.key(p)
        if key is None:
            return h
        if position is None or model is None:
            if runs_on_triton(h):
                return dropped(h, key, p)
            position = torch.arange(h.size(0), dtype=torch.int32, device=h.device)
        elif key.numel() > 1:
            key = key.index_select(0, model)
        times = h if constant else None
        scale = (
            keep_rows(position, h.size(1), key, p, h.dtype, times)
            if h.dim() == 2
            else keep_scale(position, key, p, h.dtype, times)
        )
        return scale if constant else h * scale

    def input(self, h: Tensor | InputFeatures, p: float, block: Any) -> Tensor | InputFeatures | DroppedFeatures:
        """Apply dropout to the input of a layer: activations, or dense or sparse features."""
        if isinstance(h, Tensor):
            return self(h, p, block.src_position, block.src_model)
        if block.src_position is not None and runs_on_triton(h.value):
            key = self.key(p)
            return h if key is None else DroppedFeatures(h, key, p)
        if isinstance(h, SparseFeatures):
            return replace(h, value=self(h.value, p, h.position, h.model, constant=True))
        return DenseFeatures(self(h.value, p, block.src_position, block.src_model, constant=True))
