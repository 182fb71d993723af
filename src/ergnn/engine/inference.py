"""Exact scores of many nodes, layer by layer: each layer is computed once for every node that is needed, in chunks.

On fields, each chunk of nodes brings its neighbors' neighbors along, and with many chunks the same rows are computed
again and again. Here a layer first multiplies every row by its matrix (``Z = H W``, short rows), then sums
over neighbors a few rows at a time, so that memory is that of ``Z`` and of one chunk's edges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from weakref import ReferenceType, WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from ergnn.data.graph import Graph
from ergnn.engine.adjacency import Adjacency, adjacency_of
from ergnn.engine.blocks import make_block
from ergnn.engine.dropout_stream import DropoutStream
from ergnn.engine.losses import MASKED
from ergnn.engine.propagation import KEPT, propagate
from ergnn.nn.backbones import Backbone
from ergnn.nn.layers import Params, form_of

FIELD_EDGES = 1 << 21
"""Fields of more edges than this are not made; their nodes are scored layer by layer."""
ROWS = 8192
"""Rows multiplied at a time."""

Read = Callable[[Tensor], Tensor]
"""Rows by node id."""


def prefers_layers(model: nn.Module, graph: Graph, nodes: Tensor) -> bool:
    """Whether the field of ``nodes`` is estimated to have more than :data:`FIELD_EDGES` edges.

    A GPU's kernels take large fields as they are.
    """
    if not isinstance(model, Backbone) or not model.runs_on_fields or graph.num_edges <= FIELD_EDGES:
        return False
    if graph.x.is_cuda:
        return False
    adj = adjacency_of(graph)
    edges = int((adj.rowptr[nodes + 1] - adj.rowptr[nodes]).sum())
    total = 0
    for _ in range(model.num_hops):
        total += edges
        edges = min(edges * graph.num_edges // graph.num_nodes, graph.num_edges)
    return total > FIELD_EDGES


def layerwise_embed(model: Backbone, graph: Graph, nodes: Tensor) -> Tensor:
    """What the output layer reads at ``nodes``: :func:`~ergnn.engine.objective.embed`, layer by layer."""
    with torch.no_grad():
        return _encoder(model, graph, nodes)(nodes)


def layerwise_logits(model: Backbone, graph: Graph, nodes: Tensor, heads: Tensor) -> Tensor:
    """Scores ``[n, outputs]`` of nodes by their ``heads`` (``[n, r]``), as :class:`FieldObjective` gives them."""
    with torch.no_grad():
        adj, form = adjacency_of(graph), form_of(model.heads[0])
        wanted = torch.unique(nodes)
        needed = adj.neighborhood(wanted) if form.aggregation is not None else wanted
        embedded = _encoder(model, graph, needed)
        used = torch.unique(heads).tolist()
        width = max(model.head_widths[head] for head in used)
        out = torch.full((*heads.shape, width), MASKED, dtype=model.dtype, device=nodes.device)
        for head in used:
            row, place = (heads == head).nonzero().unbind(1)
            scored = torch.unique(nodes[row])
            scores = _layer(model.heads[head], adj, embedded, needed, scored)
            out[row, place, : scores.size(1)] = scores[torch.searchsorted(scored, nodes[row])]
        return out.flatten(1)


@dataclass(frozen=True, eq=False)
class _Encoded:
    """The encoder's rows of every node, and what they were computed from."""

    graph: ReferenceType[Graph]
    params: list[Tensor]
    read: Read


_ENCODED: WeakKeyDictionary[nn.Module, _Encoded] = WeakKeyDictionary()
"""The latest of each model: after a task, the nodes of all tasks so far are scored one after another."""


def _encoder(model: Backbone, graph: Graph, nodes: Tensor) -> Read:
    """The encoder's rows, of ``nodes`` at least."""
    n = graph.num_nodes
    params = [value.detach() for value in model.convs.parameters()]
    kept = _ENCODED.get(model)
    if kept is not None and kept.graph() is graph:
        same = len(kept.params) == len(params)
        if same and all(torch.equal(a, b) for a, b in zip(kept.params, params, strict=True)):
            return kept.read
    reads_neighbors = model.propagated_hops or any(form_of(conv).aggregation for conv in model.learned_layers)
    read_by = adjacency_of(graph).neighborhood(nodes) if reads_neighbors else nodes
    if 2 * read_by.numel() < n or n * model.embedding_size > KEPT:
        return _encode(model, graph, nodes)
    read = _encode(model, graph, torch.arange(n, device=nodes.device))
    _ENCODED[model] = _Encoded(ref(graph), [value.clone() for value in params], read)
    return read


def _encode(model: Backbone, graph: Graph, nodes: Tensor) -> Read:
    adj, dtype = adjacency_of(graph), model.dtype
    hops, layers = model.propagated_hops, model.learned_layers
    sets = [torch.unique(nodes)]  # of each layer, last first: the nodes that it writes, and those that the first reads
    for conv in reversed(layers):
        sets.append(adj.neighborhood(sets[-1]) if form_of(conv).aggregation is not None else sets[-1])
    known = sets.pop()

    def read(part: Tensor) -> Tensor:
        return graph.rows(part).to(dtype)

    rows: Read = read if not hops else _table(known, propagate(graph, hops, nodes=known, dtype=dtype))
    for conv in layers:
        written = sets.pop()
        value = model.activation(_layer(conv, adj, rows, known, written))
        rows, known = _table(written, value), written
    return rows


def _layer(conv: nn.Module, adj: Adjacency, read: Read, known: Tensor, written: Tensor) -> Tensor:
    """One layer's rows of ``written``, from rows of ``known``."""
    params: Params = {name: _flip(value.detach()).unsqueeze(0) for name, value in conv.named_parameters()}
    form, drop, out = form_of(conv), DropoutStream(None), []
    weight, params = _projected(params, form.projections)
    z = torch.cat([read(part) @ weight for part in known.split(ROWS)])
    rows = _table(known, z)
    for part in adj.chunks(written):
        block, source = make_block(adj, form.aggregation, part, torch.zeros_like(part), 1, z.dtype)
        out.append(form.forward(conv, params, rows(source), block, drop))
    return torch.cat(out)


def _projected(params: Params, names: tuple[str, ...]) -> tuple[Tensor, Params]:
    """All of a layer's projections side by side, and its parameters for rows that have been multiplied with them."""
    weight = torch.cat([params[name][0] for name in names], dim=1)
    select = torch.eye(weight.size(1), dtype=weight.dtype, device=weight.device)
    parts = select.split([params[name].size(2) for name in names], dim=1)
    return weight, {**params, **{name: part.unsqueeze(0) for name, part in zip(names, parts, strict=True)}}


def _table(nodes: Tensor, value: Tensor) -> Read:
    """``value`` by node id; ``nodes`` are ascending."""
    return lambda wanted: value[torch.searchsorted(nodes, wanted)]


def _flip(value: Tensor) -> Tensor:
    return value.t() if value.dim() == 2 else value
