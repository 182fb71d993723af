"""φ of a graph's nodes under a feature map, without ever holding φ of all of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ergnn.analytic.inputs import Inputs
from ergnn.analytic.maps import FeatureMap
from ergnn.analytic.propagation import NormalizedAdjacency

CONSTANT = 0.3
"""Appended to each row of φ: an intercept that the penalty applies to."""

BLOCK_BYTES = {"cpu": 1 << 28, "cuda": 1 << 32}
"""Memory that one block of columns takes while it is propagated, by device."""

CACHE_BYTES, CACHE_COLUMNS = 1 << 21, 16
"""On a CPU, a matrix of a block stays within so many bytes, down to so many columns: it then stays in the cache."""

ROUNDING = 100
"""Rows of a block that are shorter than so many units of rounding are what is left of a sum that is zero."""


class Features:
    """``φ_v = [z_v1/‖z_v1‖, …, z_vB/‖z_vB‖] / √B, 0.3`` with ``Z_k = p_k(S) X``; a zero row stays zero.

    Rows of few nodes are computed from the other side: ``E p_k(S) X = (p_k(Sᵀ) Eᵀ)ᵀ X`` propagates a column per
    node instead of a column per feature. Scores of all nodes use ``p_k(S) X W = p_k(S) (X W)``, a column per
    class and block, and the lengths ``‖z_vk‖`` of all nodes, which are computed once in column blocks.

    Args:
        feature_map: the polynomials.
        operator: S.
        inputs: X.
        block_bytes: memory for a block of columns; by default that of the device.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        operator: NormalizedAdjacency,
        inputs: Inputs,
        block_bytes: int | None = None,
    ) -> None:
        self.feature_map, self.operator, self.inputs = feature_map, operator, inputs
        self.block_bytes = (
            BLOCK_BYTES.get(operator.device.type, BLOCK_BYTES["cpu"]) if block_bytes is None else block_bytes
        )
        self._norms: Tensor | None = None
        self._kept: Tensor | None = None

    @property
    def width(self) -> int:
        """Columns of φ."""
        return self.feature_map.num_blocks * self.inputs.width + 1

    def rows(self, nodes: Tensor) -> Tensor:
        """φ of some nodes, ``[nodes, width]``."""
        if self._norms is None and self._fits():
            self.norms()
        if self._kept is not None:
            z = self._kept[nodes]
        elif nodes.numel() < self.inputs.width:
            z = self._from_nodes(nodes)
        else:
            shape = (nodes.numel(), self.feature_map.num_blocks, self.inputs.width)
            z = torch.empty(shape, dtype=self.inputs.dtype, device=nodes.device)
            for first, last, blocks in self._sweep():
                for k, block in enumerate(blocks):
                    z[:, k, first:last] = block[nodes]
        z = z / (_length(z.norm(dim=2, keepdim=True)) * self.feature_map.num_blocks**0.5)
        return torch.cat([z.flatten(1), z.new_full((nodes.numel(), 1), CONSTANT)], 1)

    def norms(self) -> Tensor:
        """``‖z_vk‖`` of all nodes, ``[nodes, blocks]``; infinite for a zero row."""
        if self._norms is None:
            shape = (self.inputs.num_nodes, self.feature_map.num_blocks)
            total = torch.zeros(shape, dtype=self.inputs.dtype, device=self.operator.device)
            kept = total.new_empty(*shape, self.inputs.width) if self._fits() else None
            for first, last, blocks in self._sweep():
                for k, block in enumerate(blocks):
                    total[:, k] += block.square().sum(1)
                    if kept is not None:
                        kept[:, k, first:last] = block
            self._norms, self._kept = _length(total.sqrt_()), kept
        return self._norms

    def scores(self, weight: Tensor) -> Tensor:
        """``φ W`` of all nodes, ``[nodes, columns of W]``, for W ``[width, columns]``."""
        count, norms = self.feature_map.num_blocks, self.norms()
        parts = weight[:-1].to(self.inputs.dtype).unflatten(0, (count, self.inputs.width))
        pushed = self.feature_map.blocks(self.operator, self.inputs.matmul(torch.cat(list(parts), 1)))
        out = CONSTANT * weight[-1].expand(self.inputs.num_nodes, -1)
        for k, block in enumerate(pushed):
            out = out + block[:, k * weight.size(1) : (k + 1) * weight.size(1)] / (norms[:, k : k + 1] * count**0.5)
        return out

    def _sweep(self) -> Iterator[tuple[int, int, list[Tensor]]]:
        """All blocks, a few columns at a time."""
        step = self._step(self.inputs.width)
        for first in range(0, self.inputs.width, step):
            last = min(first + step, self.inputs.width)
            yield first, last, self.feature_map.blocks(self.operator, self.inputs.columns(first, last))

    def _from_nodes(self, nodes: Tensor) -> Tensor:
        parts = []
        for part in nodes.split(self._step(nodes.numel())):
            shape = (self.inputs.num_nodes, part.numel())
            one = torch.zeros(shape, dtype=self.inputs.dtype, device=nodes.device)
            one[part, torch.arange(part.numel(), device=nodes.device)] = 1.0
            found = torch.cat(self.feature_map.blocks(self.operator.T, one), 1)
            z = self.inputs.t_matmul(found).unflatten(1, (self.feature_map.num_blocks, part.numel()))
            parts.append(z.permute(2, 1, 0))
        none = (0, self.feature_map.num_blocks, self.inputs.width)
        return torch.cat([torch.empty(none, dtype=self.inputs.dtype, device=nodes.device), *parts])

    def _step(self, most: int) -> int:
        """How many columns a block has."""
        column = max(1, self.inputs.num_nodes * self.inputs.dtype.itemsize)
        if self.operator.device.type == "cpu":
            most = min(most, max(CACHE_COLUMNS, CACHE_BYTES // column))
        return max(1, min(most, self.block_bytes // (column * (self.feature_map.num_blocks + 2))))

    def _fits(self) -> bool:
        """Whether all blocks may stay in a GPU's memory: a quarter of what is free."""
        if self.operator.device.type != "cuda":
            return False
        entries = self.inputs.num_nodes * self.feature_map.num_blocks * self.inputs.width
        return entries * self.inputs.dtype.itemsize <= torch.cuda.mem_get_info(self.operator.device)[0] // 4


def _length(norm: Tensor) -> Tensor:
    """What to divide rows of this norm by; a zero row stays zero."""
    return torch.where(norm > ROUNDING * torch.finfo(norm.dtype).eps, norm, torch.inf)
