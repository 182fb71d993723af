"""Stateless dropout: the mask is a hash of (seed, task, epoch, site, position).

The same seed drops the same entries for a single model and for stacked models, on a CPU and on a GPU, and in an
uninterrupted and in a resumed run. The mixer is a keyed 32-bit avalanche hash (two multiply-xorshift rounds, as in the
public-domain "lowbias32").
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ergnn.engine.features import DroppedFeatures, InputFeatures, SparseFeatures, StoredFeatures
from ergnn.engine.kernels import runs_on_triton

_M0, _M1, _M2 = 0x9E3779B9 - 2**32, 0x7FEB352D, 0x846CA68B - 2**32
_TARGET, _SOURCE, _HEAD = 0x9E3779B1 - 2**32, 0x85EBCA77 - 2**32, 0xC2B2AE3D - 2**32
_FIRST, _SECOND = 0x21F0AAAD, 0x735A2D97
"""Factors of the hash of attention weights."""


def _mix(x: Tensor, key: Tensor) -> Tensor:
    """Hash int32 ``x`` with int32 ``key`` in place; masks turn arithmetic shifts into logical ones."""
    x = x.mul_(_M0).bitwise_xor_(key)
    x = x.bitwise_xor_(shifted(x, 16).bitwise_and_(0xFFFF)).mul_(_M1).add_(key)
    x = x.bitwise_xor_(shifted(x, 15).bitwise_and_(0x1FFFF)).mul_(_M2)
    return x.bitwise_xor_(shifted(x, 16).bitwise_and_(0xFFFF))


def shifted(x: Tensor, bits: int) -> Tensor:
    """Return ``x >> bits``; on a CPU, only the shift in place uses SIMD instructions."""
    return x.clone().bitwise_right_shift_(bits) if x.device.type == "cpu" else x >> bits


def dropout_keys(seeds: list[int], task: int, epochs: int, sites: int, device: torch.device | str = "cpu") -> Tensor:
    """Return the keys ``[epochs, sites, models]`` of a whole task, so that no epoch waits for the host."""
    bases = [(seed * 1_000_003 + task * 7919 + 12345) & 0x7FFFFFFF for seed in seeds]
    base, last = (torch.tensor(values, dtype=torch.int32, device=device) for values in (bases, 0x5BD1E995))
    sites_of_epochs = torch.arange(epochs * sites, dtype=torch.int32, device=device).view(epochs, sites, 1)
    return _mix(_mix(sites_of_epochs.expand(epochs, sites, len(seeds)).clone(), base), last)


def threshold(p: float) -> int:
    """Return the threshold below which a hash, as a signed 32-bit integer, means that an entry is dropped."""
    return min(int(p * 2**32) - 2**31, 2**31 - 1)


def _scale(mixed: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """Return ``1 / (1 - p)`` or 0 for hashes."""
    return (mixed >= threshold(p)).to(dtype).mul_(1.0 / (1.0 - p))


def keep_scale(position: Tensor, key: Tensor, p: float, dtype: torch.dtype, width: int | None = None) -> Tensor:
    """Return ``1 / (1 - p)`` for entries that are kept, and 0 for dropped ones.

    Args:
        position: ``[n, …]``, int32 position of each entry within its model; not modified. With ``width``, ``[rows]``:
            entry j of row i is at ``position[i] · width + j``.
        key: int32 key of the model of each entry, broadcastable to ``position``; with ``width``, one key or ``[rows]``.
        p: dropout probability.
        width: number of entries per row.
    """
    if width is None:
        return _scale(_mix(position.clone(), key), p, dtype)
    column = torch.arange(width, dtype=torch.int32, device=position.device)
    key = key if key.numel() == 1 else key.unsqueeze(1)
    return _scale(_mix(position.unsqueeze(1) * width + column, key), p, dtype)


def attention_keep(target: Tensor, source: Tensor, heads: int, key: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """Return ``1 / (1 - p)`` for attention weights that are kept, and 0 for dropped ones: ``[edges, heads]``.

    The mask is a hash of (target row, source row, head, key), so the passes over targets and over sources agree
    without knowing the position of an edge in the other list. Duplicate edges have the same mask.
    """
    edge = target.int() * _TARGET + source.int() * _SOURCE
    x = edge.unsqueeze(1) + torch.arange(heads, dtype=torch.int32, device=edge.device) * _HEAD + key
    x = x.bitwise_xor_(shifted(x, 16).bitwise_and_(0xFFFF)).mul_(_FIRST)
    x = x.bitwise_xor_(shifted(x, 15).bitwise_and_(0x1FFFF)).mul_(_SECOND)
    return _scale(x, p, dtype)


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

    def __call__(self, h: Tensor, p: float, position: Tensor | None, model: Tensor | None) -> Tensor:
        """Drop entries of ``h``; row i is row ``position[i]`` of model ``model[i]``.

        If they are None, ``h`` has the rows of one model in order.
        """
        key = self.key(p)
        if key is None:
            return h
        if position is None or model is None:
            if runs_on_triton(h):
                from ergnn.engine.kernels.triton_common import Dropped

                return Dropped.apply(h, key, p)
            position = torch.arange(h.size(0), dtype=torch.int32, device=h.device)
        elif key.numel() > 1:
            key = key.index_select(0, model)
        return h * keep_scale(position, key, p, h.dtype, h.size(1) if h.dim() == 2 else None)

    def input(self, h: InputFeatures, p: float, block: Any, is_first: bool) -> InputFeatures | DroppedFeatures:
        """Apply dropout to the input of a layer: activations or, for the first layer, features."""
        if self.keys is None:
            return h
        assert not isinstance(h, StoredFeatures)
        value = h.value if isinstance(h, SparseFeatures) else h
        if is_first and block.src_position is not None and runs_on_triton(value):
            key = self.key(p)
            return h if key is None else DroppedFeatures(h, key, p)
        if isinstance(h, SparseFeatures):
            return replace(h, value=self(value, p, h.position, h.model))
        return self(value, p, block.src_position, block.src_model)
