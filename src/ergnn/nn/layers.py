"""What the engine has to know about a kind of layer: one class per kind, in the file of its backbone.

A :class:`LayerForm` says how a layer weighs neighbors, which of its settings are supported, and what it computes on a
*block*, the edges from the rows that the layer reads to those it writes. With this alone, a layer runs on exact and
sampled receptive fields, layer by layer, on large graphs, and for many models side by side. Layers without a form, and
subclasses of layers that have one, run as they are on the whole graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor, nn

Params = Mapping[str, Tensor]
"""A layer's parameters by name, stacked: ``[slots, …]``, and matrices as ``[slots, in, out]``."""


@dataclass(frozen=True)
class Aggregation:
    """How a sum over neighbors weighs the edge from j to i: ``source(d_j) · target(d_i)``.

    Args:
        self_loops: whether each node has exactly one edge from itself.
        source, target: functions of the in-degree (float64, self-loops counted where they are added); None is 1.
        weighted: whether :meth:`Block.aggregate` is used at all; attention has weights of its own.
    """

    self_loops: bool = False
    source: Callable[[Tensor], Tensor] | None = None
    target: Callable[[Tensor], Tensor] | None = None
    weighted: bool = True


def _mean(degree: Tensor) -> Tensor:
    return degree.clamp(min=1).reciprocal()


ATTENTION = Aggregation(self_loops=True, weighted=False)
SYMMETRIC = Aggregation(self_loops=True, source=torch.rsqrt, target=torch.rsqrt)
"""``S = D̃^-½ (A + I) D̃^-½``, as GCN and SGC have it."""
MEAN = Aggregation(target=_mean)
SUM = Aggregation()


class Rows(Protocol):
    """Rows that may belong to several sets of parameters (slots)."""

    def matmul(self, h: Tensor, weight: Tensor) -> Tensor:
        """Each row times the matrix of its slot; ``weight`` is ``[slots, in, out]``."""
        ...

    def each(self, parameter: Tensor) -> Tensor:
        """The entry of ``parameter``, ``[slots, …]``, for each row."""
        ...


class Block(Protocol):
    """One layer's edges, from the rows that it reads (sources) to the rows that it writes (targets)."""

    @property
    def src(self) -> Rows: ...

    @property
    def dst(self) -> Rows: ...

    def project(self, h: Any, weight: Tensor) -> Tensor:
        """``h W`` for what the layer reads: activations, or dense or sparse features."""
        ...

    def at_targets(self, h: Tensor) -> Tensor:
        """The target nodes' own rows among source rows."""
        ...

    def aggregate(self, h: Tensor) -> Tensor:
        """``Σ_j w_ij h_j`` over the edges into each target row, with the layer's :class:`Aggregation`."""
        ...

    def attend(self, z: Tensor, att_src: Tensor, att_dst: Tensor, slope: float, drop: Any, p: float) -> Tensor:
        """``Σ_j α_ij z_j`` with ``α_i = softmax_j LeakyReLU(⟨att_src, z_j⟩ + ⟨att_dst, z_i⟩)`` and dropout on α.

        ``z`` is ``[sources, heads, width]``, attention vectors are ``[slots, heads, width]``.
        """
        ...


class LayerForm(ABC):
    """One kind of layer on a block.

    Attributes:
        aggregation: how neighbors are weighed; None reads no neighbors.
        projections: the names of all matrices that :meth:`forward` multiplies what it reads with, by
            ``block.project`` and before anything else. (Layer-wise inference multiplies all rows by them first.)
    """

    aggregation: ClassVar[Aggregation | None]
    projections: ClassVar[tuple[str, ...]]

    @abstractmethod
    def supports(self, conv: Any) -> bool:
        """Whether :meth:`forward` is this layer's own ``forward``, as the layer is configured."""

    @abstractmethod
    def forward(self, conv: Any, params: Params, h: Any, block: Block, drop: Any) -> Tensor:
        """The layer's output at the target rows; ``drop`` is handed on to ``block.attend``."""


FORMS: dict[type[nn.Module], LayerForm] = {}
"""Layer type → its form."""

F = TypeVar("F", bound=type[LayerForm])


def form_for(layer: type[nn.Module]) -> Callable[[F], F]:
    """Class decorator: this is the form of layers of exactly this type."""

    def decorate(form: F) -> F:
        FORMS[layer] = form()
        return form

    return decorate


def form_of(layer: nn.Module) -> LayerForm:
    """The form of a layer that has one (see :func:`has_form`)."""
    return FORMS[type(layer)]


def has_form(layer: nn.Module) -> bool:
    """Whether this layer, as it is configured, has a form. A subclass has none: its ``forward`` may be another."""
    if type(layer) not in FORMS:
        from ergnn.nn.backbones import BACKBONES

        BACKBONES.names()  # imports every backbone's file
    return type(layer) in FORMS and FORMS[type(layer)].supports(layer)


def reads_messages(conv: Any, *aggregations: str) -> bool:
    """Whether one of PyG's convolutions sums messages along edges in one of these ways."""
    return conv.flow == "source_to_target" and conv.aggr in aggregations


class Propagate(nn.Module):
    """``S^K x`` with ``S = D̃^-½ (A + I) D̃^-½``: SGC's only use of the graph; it has no parameters.

    It comes before all other layers, and the engine computes it once: :mod:`ergnn.engine.propagation`.
    """

    def __init__(self, hops: int) -> None:
        super().__init__()
        self.hops = hops

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        from torch_geometric.nn.conv.gcn_conv import gcn_norm

        (source, target), weight = gcn_norm(edge_index, None, x.size(0), add_self_loops=True, dtype=x.dtype)
        index = target.unsqueeze(1).expand(-1, x.size(1))
        for _ in range(self.hops):
            x = torch.zeros_like(x).scatter_add(0, index, weight.unsqueeze(1) * x.index_select(0, source))
        return x
