"""φ of the nodes of a graph under a feature map, computed in blocks of columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ergnn.analytic.inputs import ROW_BLOCK, Inputs
from ergnn.analytic.maps import FeatureMap
from ergnn.engine.distributed import Ranks, sum_over_ranks
from ergnn.engine.hardware import use_threads
from ergnn.engine.propagation import NormalizedAdjacency

T = TypeVar("T")

CONSTANT = 0.3
"""Appended to each row of φ: an intercept, which is penalized like other weights."""

BLOCK_BYTES = {"cpu": 3 << 29, "cuda": 1 << 32}
"""Memory for the blocks of columns that are propagated at a time, by device."""

MATRICES = 4
"""Number of matrices of the size of a block that exist at a time: X, Z, Z scaled, and the next Z."""

CACHE_BYTES, CACHE_COLUMNS = 1 << 20, 8
"""On a CPU, maximum bytes of a block's matrix, so that it fits in the cache; but at least this many columns."""

GPU_COLUMNS = 64
"""On a GPU, a block's matrix fits in the L2 cache, but has at least this many columns."""

SPARSE_COST = 8
"""Time of a multiplication in a sparse product, in multiplications of a dense one."""

KEPT_BYTES = 1 << 30
"""On a CPU, Z of all nodes is cached after the first sweep if it takes at most this many bytes; on a GPU, a quarter of
the free memory."""

LENGTHS = 2.0
"""Rows of X are divided by their lengths after this many typical squared lengths are added: long rows stay longer."""

ROUNDING = 100
"""Rows of a block with a norm below this many machine epsilons count as zero."""


class Features:
    """``φ_v = [z_v1/‖z_v1‖, …, z_vB/‖z_vB‖] / √B, 0.3`` with ``Z_k = p_k(S) X``; a zero row stays zero.

    If X has columns of a table and ``Z_1 = X``, then ``‖z_v1‖`` is replaced by ``√(‖z_v1‖² + 2q)``, where q is the
    typical squared length of a row: how far a node is from the mean tells nodes apart.

    A *sweep* propagates all columns of X, a few at a time, and stores the rows of some nodes and the norms ``‖z_vk‖``
    of all. For few nodes, ``E p_k(S) X = (p_k(Sᵀ) Eᵀ)ᵀ X`` propagates one column per node instead of one per feature.
    Scores of all nodes use ``p_k(S) X W = p_k(S) (X W)``, one column per class and block. Memory is bounded by a block
    of columns and the returned values, whether X and the edges are in memory or in mapped files.

    Args:
        feature_map: the polynomials.
        operator: S.
        inputs: X.
        keeps: whether Z of all nodes is cached if it is small enough; otherwise, each sweep recomputes it.
    """

    def __init__(
        self, feature_map: FeatureMap, operator: NormalizedAdjacency, inputs: Inputs, keeps: bool = True
    ) -> None:
        self.feature_map, self.operator, self.inputs, self.keeps = feature_map, operator, inputs, keeps
        self.added = added_length(feature_map, inputs.square)
        self._norms: Tensor | None = None
        self._kept: Tensor | None = None

    @property
    def name(self) -> str:
        """The name of the feature map, and whether columns are standardized."""
        return self.feature_map.name + (", columns" if self.inputs.standardized else "")

    @property
    def width(self) -> int:
        """Number of columns of φ."""
        return self.feature_map.num_blocks * self.inputs.width + 1

    def rows(self, nodes: Tensor, ranks: Ranks | None = None) -> Tensor:
        """Return φ of some nodes, ``[nodes, width]``.

        Args:
            nodes: node ids.
            ranks: the process group, if all ranks call this with the same nodes; each propagates some of the columns.
        """
        new = torch.empty if ranks is None else torch.zeros  # ranks add their columns
        out = new(nodes.numel(), self.width, dtype=self.inputs.dtype, device=nodes.device)
        z = out[:, :-1].unflatten(1, (self.feature_map.num_blocks, self.inputs.width))
        few = self.is_few(nodes.numel())
        if ranks is not None:  # ignore this rank's cache: all ranks must take the same branch
            self._from_nodes(nodes, z) if few else self._sweep(nodes, z, ranks)
        elif self._kept is None and few and not (self.operator.device.type == "cuda" and self._fits()):
            self._from_nodes(nodes, z)
        else:
            if self._kept is None:
                self._sweep(nodes, z)
            if self._kept is not None:
                z.copy_(self._kept[nodes])
        z /= (length(z.norm(dim=2), self.added) * self.feature_map.num_blocks**0.5).unsqueeze(2)
        out[:, -1] = CONSTANT
        return out

    def is_few(self, count: int) -> bool:
        """Return whether to propagate one column per node for rows of so many nodes, and not the features of all."""
        if self.inputs.is_sparse or count >= self.inputs.width:
            return count < self.inputs.width
        entries = self.operator.adj.num_edges + self.inputs.num_nodes  # of dense features, products per node cost more
        per_column = SPARSE_COST * entries * self.feature_map.num_hops
        return count < per_column // (self.inputs.num_nodes * self.feature_map.num_blocks)

    def reads_all(self, count: int) -> bool:
        """Return whether rows of so many nodes take no longer than those of some of them, and little memory."""
        return not self.is_few(count) and count * self.width * self.inputs.dtype.itemsize <= KEPT_BYTES

    def norms(self) -> Tensor:
        """Return ``‖z_vk‖`` of all nodes, ``[nodes, blocks]``; infinite for a zero row."""
        if self._norms is None:
            self._sweep()
        assert self._norms is not None
        return self._norms

    def scores(self, weight: Tensor) -> Tensor:
        """Return ``φ W`` of all nodes, ``[nodes, columns of W]``, for W ``[width, columns]``."""
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
        """Propagate all columns; store the norms, and either Z of all nodes if it fits, or ``z`` of some nodes.

        On several ranks, each propagates its share of the columns.
        """
        shape = (self.inputs.num_nodes, self.feature_map.num_blocks)
        total = torch.zeros(shape, dtype=self.inputs.dtype, device=self.operator.device)
        kept = total.new_empty(*shape, self.inputs.width) if ranks is None and self._fits() else None
        start, stop = 0, self.inputs.width
        if ranks is not None:
            start, stop = stop * ranks.rank // ranks.size, stop * (ranks.rank + 1) // ranks.size
        step = self._step(self.inputs.width)

        def propagate(first: int) -> Tensor:
            last, squares = min(first + step, stop), torch.empty_like(total)
            for k, block in enumerate(self.feature_map.blocks(self.operator, self.inputs.columns(first, last))):
                squares[:, k] = torch.linalg.vector_norm(block, dim=1).square_()
                if kept is not None:
                    kept[:, k, first:last] = block
                elif z is not None:
                    z[:, k, first:last] = block[nodes]
            return squares

        for squares in self._for_each(propagate, range(start, stop, step)):
            total += squares
        if ranks is not None and z is not None:
            sum_over_ranks(z, total)
        self._norms, self._kept = length(total.sqrt_(), self.added), kept

    def _from_nodes(self, nodes: Tensor, z: Tensor) -> None:
        transposed, step = self.operator.T, self._step(nodes.numel())

        def propagate(first: int) -> None:
            some, rows = nodes[first : first + step], z[first : first + step]
            one = torch.zeros(self.inputs.num_nodes, some.numel(), dtype=self.inputs.dtype, device=nodes.device)
            one[some, torch.arange(some.numel(), device=nodes.device)] = 1.0
            for k, block in enumerate(self.feature_map.blocks(transposed, one)):
                rows[:, k] = self.inputs.t_matmul(block).T

        list(self._for_each(propagate, range(0, nodes.numel(), step)))

    def _for_each(self, work: Callable[[int], T], blocks: Iterable[int]) -> Iterator[T]:
        """Yield the results of ``work`` on blocks of columns, as many at a time as there are workers."""
        if self._workers == 1:
            yield from map(work, blocks)
            return
        with ThreadPoolExecutor(self._workers) as pool, use_threads(1):
            yield from pool.map(work, blocks)

    @property
    def _workers(self) -> int:
        """Number of blocks of columns to propagate at a time: on a CPU, each thread takes one."""
        return torch.get_num_threads() if self.operator.device.type == "cpu" else 1

    def _step(self, most: int) -> int:
        """Return the number of columns per block."""
        column = max(1, self.inputs.num_nodes * self.inputs.dtype.itemsize)
        if self.operator.device.type == "cpu":
            most = min(most, max(CACHE_COLUMNS, CACHE_BYTES // column))
        elif self.operator.device.type == "cuda":
            cache = torch.cuda.get_device_properties(self.operator.device).L2_cache_size
            most = min(most, max(GPU_COLUMNS, cache // column // GPU_COLUMNS * GPU_COLUMNS))
        block_bytes = BLOCK_BYTES.get(self.operator.device.type, BLOCK_BYTES["cpu"]) // self._workers
        return max(1, min(most, block_bytes // (column * MATRICES)))

    def _fits(self) -> bool:
        """Return whether Z of all nodes may stay in memory."""
        device = self.operator.device
        most = torch.cuda.mem_get_info(device)[0] // 4 if device.type == "cuda" else KEPT_BYTES
        entries = self.inputs.num_nodes * self.feature_map.num_blocks * self.inputs.width
        return self.keeps and entries * self.inputs.dtype.itemsize <= most


def added_length(feature_map: FeatureMap, square: float) -> list[float]:
    """Return the length that is added to rows of each block, given the typical squared length of rows of X."""
    return [(LENGTHS * square * feature_map.starts_with_x * (k == 0)) ** 0.5 for k in range(feature_map.num_blocks)]


def length(norm: Tensor, added: Sequence[float] | float = 0.0) -> Tensor:
    """Return the divisor ``√(norm² + added²)`` of rows of this norm; infinite for a zero row, which stays zero."""
    divisor = (norm.square() + norm.new_tensor(added).square()).sqrt() if np.any(added) else norm
    return torch.where(norm > ROUNDING * torch.finfo(norm.dtype).eps, divisor, torch.inf)


def join_blocks(blocks: Iterable[Tensor], added: Sequence[float]) -> Tensor:
    """Return φ of all nodes, given ``Z_k`` of all nodes, ``[nodes, width]``; in operations that can be exported."""
    scaled = [z / length(z.norm(dim=1, keepdim=True), a) for z, a in zip(blocks, added, strict=True)]
    phi = torch.cat(scaled, 1) / len(scaled) ** 0.5
    return torch.nn.functional.pad(phi, (0, 1), value=CONSTANT)
