"""Blocks: the edges that one layer needs to compute some rows, exact or sampled."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.data.csr import pointers
from ergnn.engine.adjacency import Adjacency, merge_loops
from ergnn.engine.dropout import DropoutStream
from ergnn.engine.features import SparsePattern, spmm
from ergnn.engine.sampling import ALL, sample_neighbors
from ergnn.engine.slots import SlotRows, model_positions
from ergnn.nn.layers import Aggregation, Block


@dataclass(frozen=True, eq=False)
class EdgeBlock(Block):
    """A block that stores its edges.

    Args:
        src, dst: source and target rows.
        root: for each target row, the source row of the same node.
        row: target row of each edge, ascending.
        pattern: positions of the edges, target rows × source rows.
        weight: factor of each edge in a sum over neighbors.
        models: number of stacked models.
        src_position, edge_position: int32 position of each source row and of each edge within its model.
    """

    src: SlotRows
    dst: SlotRows
    root: Tensor
    row: Tensor
    pattern: SparsePattern
    weight: Tensor
    models: int
    src_position: Tensor
    edge_position: Tensor

    @property
    def src_model(self) -> Tensor:
        return self.src.slot // (self.src.slots // self.models)

    @property
    def edge_model(self) -> Tensor:
        return self.dst.slot[self.row] // (self.src.slots // self.models)

    def at_targets(self, h: Tensor) -> Tensor:
        return h.index_select(0, self.root)

    def aggregate(self, h: Tensor) -> Tensor:
        return spmm(self.pattern, self.weight.to(h.dtype), h)

    def attend(
        self, z: Tensor, att_src: Tensor, att_dst: Tensor, slope: float, drop: DropoutStream, p: float
    ) -> Tensor:
        """Compute attention over ``z``, ``[sources, heads, width]``, storing one entry per edge, head and channel."""
        from_source, col = (z * self.src.each(att_src)).sum(-1), self.pattern.col
        to_target = (self.at_targets(z) * self.dst.each(att_dst)).sum(-1)
        score = from_source.index_select(0, col) + to_target.index_select(0, self.row)
        score = F.leaky_relu(score, slope)
        count, heads = self.dst.count, z.size(1)
        index = self.row.unsqueeze(1).expand(-1, heads)
        largest = score.detach().new_zeros(count, heads)
        largest = largest.scatter_reduce(0, index, score.detach(), "amax", include_self=False)
        weight = torch.exp(score - largest.index_select(0, self.row))
        total = weight.new_zeros(count, heads).index_add(0, self.row, weight)
        alpha = weight / total.index_select(0, self.row)
        alpha = drop(alpha, p, self.edge_position, self.edge_model)
        message = alpha.unsqueeze(-1) * z.index_select(0, col)
        return message.new_zeros(count, *z.shape[1:]).index_add(0, self.row, message)


def make_block(
    adj: Adjacency,
    aggregation: Aggregation | None,
    nodes: Tensor,
    slot: Tensor,
    slots: int,
    dtype: torch.dtype = torch.float32,
    *,
    models: int = 1,
    fanout: int = ALL,
    replace: bool = False,
    key: int = 0,
) -> tuple[EdgeBlock, Tensor]:
    """Build the block whose target rows are ``nodes``, each computed with the parameters of its ``slot``.

    With several models, the block has one component per model, built with one set of operations for all.

    Args:
        adj: adjacency of the whole graph; weights use its degrees, so a small field is exact.
        aggregation: weighting of neighbors; None for layers without neighbors.
        dtype: dtype of the weights.
        models: number of stacked models, with ``slots // models`` slots each; ``nodes`` are those of the first model,
            then those of the second, and so on.
        fanout, replace, key: settings of :func:`~ergnn.engine.sampling.sample_neighbors`; by default all neighbors.

    Returns:
        the block and the node of each of its source rows.
    """
    n = adj.num_nodes
    if aggregation is None:
        row = source = nodes.new_empty(0)
        weight = torch.empty(0, dtype=dtype, device=nodes.device)
    else:
        looped = aggregation.self_loops
        adj = adj.without_loops() if looped else adj
        row, source, count = sample_neighbors(adj, nodes, fanout, replace, key)
        if aggregation.weighted:
            weight, of_loop = _weights(aggregation, adj, nodes, row, source, None if fanout == ALL else count)
            if looped:
                row, source, weight = merge_loops(row, count, source, nodes, weight, of_loop)
            weight = weight.to(dtype)
        else:
            row, source = merge_loops(row, count, source, nodes) if looped else (row, source)
            weight = torch.ones(row.numel(), dtype=dtype, device=nodes.device)
    if slots == 1:
        read, local = relabel(torch.cat([nodes, source]), n)
        rows = SlotRows(torch.zeros_like(read), 1)
    else:
        keys, local = relabel(torch.cat([slot * n + nodes, slot[row] * n + source]), slots * n)
        read, rows = keys % n, SlotRows(keys // n, slots, models)
    root, col = local[: nodes.numel()], local[nodes.numel() :]
    targets = SlotRows(rows.slot[root], slots, models)
    pattern = SparsePattern(pointers(row, targets.count), col, (targets.count, rows.count))
    position = [model_positions(index, slots // models, models) for index in (rows.slot, slot[row])]
    return EdgeBlock(rows, targets, root, row, pattern, weight, models, *position), read


def _weights(
    aggregation: Aggregation, adj: Adjacency, nodes: Tensor, row: Tensor, source: Tensor, count: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the weights of edges, multiplied by ``d/k`` if k of d neighbors are sampled, and of self-loops.

    Args:
        row, source: target row and source node of each edge.
        count: number of sampled neighbors of each of ``nodes``; None for all.
    """
    loop, degree = int(aggregation.self_loops), adj.degrees(nodes)
    looped_degree = (degree + loop).to(torch.float64)
    of_loop = torch.ones_like(looped_degree) if aggregation.target is None else aggregation.target(looped_degree)
    weight = (of_loop if count is None else of_loop * (degree / count.to(torch.float64))).index_select(0, row)
    if aggregation.source is not None:
        weight = aggregation.source((adj.degrees(source) + loop).to(torch.float64)) * weight
        of_loop = of_loop * aggregation.source(looped_degree)
    return weight, of_loop


def relabel(keys: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Compute ``torch.unique(keys, return_inverse=True)`` for keys below ``size``, with a table if that is faster."""
    if size > 16 * keys.numel():
        return torch.unique(keys, return_inverse=True)
    table = torch.zeros(size, dtype=torch.int64, device=keys.device)
    table[keys] = 1
    known = table.nonzero().flatten()
    table[known] = torch.arange(known.numel(), device=keys.device)
    return known, table.index_select(0, keys)
