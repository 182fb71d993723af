"""φ of a graph's nodes under a feature map, without holding φ of all of them where that is large."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from ergnn.analytic.inputs import ROW_BLOCK, Inputs
from ergnn.analytic.maps import FeatureMap
from ergnn.distributed import Ranks, sum_over_ranks
from ergnn.engine.propagation import NormalizedAdjacency

CONSTANT = 0.3
"""Appended to each row of φ: an intercept that the penalty applies to."""

BLOCK_BYTES = {"cpu": 3 << 29, "cuda": 1 << 32}
"""Memory that one block of columns takes while it is propagated, by device."""

MATRICES = 4
"""Matrices of the size of a block that exist at a time: X, Z, Z scaled, and the next Z."""

CACHE_BYTES, CACHE_COLUMNS = 1 << 21, 8
"""On a CPU, a matrix of a block stays within so many bytes, down to so many columns: it then stays in the cache."""

GPU_COLUMNS = 64
"""On a GPU, a matrix of a block stays within the L2 cache, down to so many columns."""

KEPT_BYTES = 1 << 30
"""On a CPU, Z of all nodes is kept after the first sweep if it takes no more; on a GPU, up to a quarter of what is
free."""

ROUNDING = 100
"""Rows of a block that are shorter than so many units of rounding are what is left of a sum that is zero."""


class Features:
    """``φ_v = [z_v1/‖z_v1‖, …, z_vB/‖z_vB‖] / √B, 0.3`` with ``Z_k = p_k(S) X``; a zero row stays zero.

    A *sweep* propagates all columns of X, a few at a time, and takes what is needed of each: rows of some nodes, and
    the lengths ``‖z_vk‖`` of all. Rows of few nodes are computed from the other side:
    ``E p_k(S) X = (p_k(Sᵀ) Eᵀ)ᵀ X`` propagates a column per node instead of a column per feature. Scores of all nodes
    use ``p_k(S) X W = p_k(S) (X W)``, a column per class and block. Memory is that of a block of columns and of what
    is returned, whether X and the edges are in memory or in mapped files.

    Args:
        feature_map: the polynomials.
        operator: S.
        inputs: X.
        block_bytes: memory for a block of columns; by default that of the device.
        kept_bytes: memory for Z of all nodes; where it takes more, each sweep computes it again.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        operator: NormalizedAdjacency,
        inputs: Inputs,
        block_bytes: int | None = None,
        kept_bytes: int | None = None,
    ) -> None:
        self.feature_map, self.operator, self.inputs = feature_map, operator, inputs
        self.block_bytes = (
            BLOCK_BYTES.get(operator.device.type, BLOCK_BYTES["cpu"]) if block_bytes is None else block_bytes
        )
        self.kept_bytes = kept_bytes
        self._norms: Tensor | None = None
        self._kept: Tensor | None = None

    @property
    def width(self) -> int:
        """Columns of φ."""
        return self.feature_map.num_blocks * self.inputs.width + 1

    def rows(self, nodes: Tensor, ranks: Ranks | None = None) -> Tensor:
        """φ of some nodes, ``[nodes, width]``.

        Args:
            nodes: their ids.
            ranks: processes that call this together, with the same nodes; each propagates its share of the columns.
        """
        out = torch.zeros(nodes.numel(), self.width, dtype=self.inputs.dtype, device=nodes.device)
        z = out[:, :-1].unflatten(1, (self.feature_map.num_blocks, self.inputs.width))
        few = nodes.numel() < self.inputs.width
        if ranks is not None:  # whatever this rank has kept: all must do the same
            self._from_nodes(nodes, z) if few else self._sweep(nodes, z, ranks)
        elif self._kept is None and few and not (self.operator.device.type == "cuda" and self._fits()):
            self._from_nodes(nodes, z)
        else:
            if self._kept is None:
                self._sweep(nodes, z)
            if self._kept is not None:
                z.copy_(self._kept[nodes])
        z /= _length(z.norm(dim=2, keepdim=True)) * self.feature_map.num_blocks**0.5
        out[:, -1] = CONSTANT
        return out

    def norms(self) -> Tensor:
        """``‖z_vk‖`` of all nodes, ``[nodes, blocks]``; infinite for a zero row."""
        if self._norms is None:
            self._sweep()
        assert self._norms is not None
        return self._norms

    def scores(self, weight: Tensor) -> Tensor:
        """``φ W`` of all nodes, ``[nodes, columns of W]``, for W ``[width, columns]``."""
        count, norms, columns = self.feature_map.num_blocks, self.norms(), weight.size(1)
        weight = weight.to(self.inputs.dtype)
        parts = weight[:-1].unflatten(0, (count, self.inputs.width))
        out = (CONSTANT * weight[-1]).repeat(self.inputs.num_nodes, 1)
        if self._kept is not None:
            for z, length, rows in zip(*(each.split(ROW_BLOCK) for each in (self._kept, norms, out)), strict=True):
                rows.addmm_((z / (length.unsqueeze(2) * count**0.5)).flatten(1), weight[:-1])
            return out
        step = self._step(columns)
        for first in range(0, columns, step):
            last = min(first + step, columns)
            for k in range(count):
                pushed = self.feature_map.blocks(self.operator, self.inputs.matmul(parts[k, :, first:last]))
                block = next(islice(pushed, k, None))
                out[:, first:last] += block / (norms[:, k : k + 1] * count**0.5)
        return out

    def _sweep(self, nodes: Tensor | None = None, z: Tensor | None = None, ranks: Ranks | None = None) -> None:
        """Propagate all columns; fill the norms, Z if it is to be kept, and else ``z`` of some nodes."""
        shape = (self.inputs.num_nodes, self.feature_map.num_blocks)
        total = torch.zeros(shape, dtype=self.inputs.dtype, device=self.operator.device)
        kept = total.new_empty(*shape, self.inputs.width) if ranks is None and self._fits() else None
        for first, last in self._ranges(ranks):
            for k, block in enumerate(self.feature_map.blocks(self.operator, self.inputs.columns(first, last))):
                total[:, k] += torch.linalg.vector_norm(block, dim=1).square_()
                if kept is not None:
                    kept[:, k, first:last] = block
                elif z is not None:
                    z[:, k, first:last] = block[nodes]
        if ranks is not None and z is not None:
            sum_over_ranks(z, total)
        self._norms, self._kept = _length(total.sqrt_()), kept

    def _ranges(self, ranks: Ranks | None) -> Iterator[tuple[int, int]]:
        """The columns of each block; of a rank, those of its share."""
        width = self.inputs.width
        start, stop = 0, width
        if ranks is not None:
            start, stop = width * ranks.rank // ranks.size, width * (ranks.rank + 1) // ranks.size
        step = self._step(width)
        for first in range(start, stop, step):
            yield first, min(first + step, stop)

    def _from_nodes(self, nodes: Tensor, z: Tensor) -> None:
        for part, rows in zip(*(each.split(self._step(nodes.numel())) for each in (nodes, z)), strict=True):
            shape = (self.inputs.num_nodes, part.numel())
            one = torch.zeros(shape, dtype=self.inputs.dtype, device=nodes.device)
            one[part, torch.arange(part.numel(), device=nodes.device)] = 1.0
            for k, block in enumerate(self.feature_map.blocks(self.operator.T, one)):
                rows[:, k] = self.inputs.t_matmul(block).T

    def _step(self, most: int) -> int:
        """How many columns a block has."""
        column = max(1, self.inputs.num_nodes * self.inputs.dtype.itemsize)
        if self.operator.device.type == "cpu":
            most = min(most, max(CACHE_COLUMNS, CACHE_BYTES // column))
        elif self.operator.device.type == "cuda":
            cache = torch.cuda.get_device_properties(self.operator.device).L2_cache_size
            most = min(most, max(GPU_COLUMNS, cache // column // GPU_COLUMNS * GPU_COLUMNS))
        return max(1, min(most, self.block_bytes // (column * MATRICES)))

    def _fits(self) -> bool:
        """Whether Z of all nodes may stay in memory."""
        most = self.kept_bytes
        if most is None:
            device = self.operator.device
            most = torch.cuda.mem_get_info(device)[0] // 4 if device.type == "cuda" else KEPT_BYTES
        entries = self.inputs.num_nodes * self.feature_map.num_blocks * self.inputs.width
        return entries * self.inputs.dtype.itemsize <= most


def _length(norm: Tensor) -> Tensor:
    """What to divide rows of this norm by; a zero row stays zero."""
    return torch.where(norm > ROUNDING * torch.finfo(norm.dtype).eps, norm, torch.inf)
