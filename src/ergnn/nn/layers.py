"""Layer forms: how the engine computes a type of layer, with one class per type in the file of its backbone.

A :class:`LayerForm` defines how a layer weights neighbors, which of its settings are supported, and what it computes on
a *block*, the edges from the layer's input rows to its output rows. This is sufficient to run a layer on exact and
sampled receptive fields, on large graphs, and for many stacked models. Layers without a form, and subclasses of layers
with a form, run their own ``forward`` on the whole graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

Norm = Literal["none", "batch", "layer"]

Params = Mapping[str, Tensor]
"""Stacked parameters of a layer by name, ``[slots, …]``, with matrices as ``[slots, in, out]``."""


@dataclass(frozen=True)
class Aggregation:
    """Weights of a sum over neighbors: ``source(d_j) · target(d_i)`` for the edge from j to i.

    Args:
        self_loops: whether to add exactly one self-loop per node.
        source, target: functions of the in-degree (float64, including added self-loops); None is 1.
    """

    self_loops: bool = False
    source: Callable[[Tensor], Tensor] | None = None
    target: Callable[[Tensor], Tensor] | None = None


ATTENTION = Aggregation(self_loops=True)
SYMMETRIC = Aggregation(self_loops=True, source=torch.rsqrt, target=torch.rsqrt)
"""``S = D̃^-½ (A + I) D̃^-½`` of GCN and SGC."""
MEAN = Aggregation(target=lambda degree: degree.clamp(min=1).reciprocal())
SUM = Aggregation()


class Block(ABC):
    """The edges of one layer, from its input rows (sources) to its output rows (targets).

    ``dst.each(parameter)`` returns the entry of ``parameter``, ``[slots, …]``, for each target row, and
    ``dst.matmul(h, weight)`` multiplies each by the matrix of its slot; ``weight`` is ``[slots, in, out]``.
    """

    src: Any
    dst: Any

    def project(self, h: Any, weight: Tensor) -> Tensor:
        """Compute ``h W`` for the input of the layer: activations, or dense or sparse features."""
        return self.src.matmul(h.to(weight.dtype), weight) if isinstance(h, Tensor) else h.project(weight, self.src)

    @abstractmethod
    def at_targets(self, h: Tensor) -> Tensor:
        """Select the rows of the target nodes from source rows."""

    @abstractmethod
    def aggregate(self, h: Tensor) -> Tensor:
        """Compute ``Σ_j w_ij h_j`` over the edges into each target row, with the layer's :class:`Aggregation`."""

    @abstractmethod
    def attend(self, z: Tensor, att_src: Tensor, att_dst: Tensor, slope: float, drop: Any, p: float) -> Tensor:
        """Compute ``Σ_j α_ij z_j`` with ``α_i = softmax_j LeakyReLU(⟨att_src, z_j⟩ + ⟨att_dst, z_i⟩)``.

        Dropout is applied to α. ``z`` is ``[sources, heads, width]``, attention vectors are ``[slots, heads, width]``.
        """


class LayerForm(ABC):
    """The computation of a type of layer on a block.

    Attributes:
        aggregation: weights of neighbors; None for layers without neighbors.
        projections: names of all matrices that :meth:`forward` multiplies its input by. It must do so with
            ``block.project`` before any other operation, as features may be sparse, or read while multiplied.
    """

    aggregation: Aggregation | None
    projections: tuple[str, ...]

    @abstractmethod
    def supports(self, conv: Any) -> bool:
        """Return whether :meth:`forward` computes the same as this layer's ``forward``, given its configuration."""

    @abstractmethod
    def forward(self, conv: Any, params: Params, h: Any, block: Block, drop: Any) -> Tensor:
        """Compute the layer's output at the target rows; pass ``drop`` to ``block.attend``."""


FORMS: dict[type[nn.Module], LayerForm] = {}
"""Layer type → its form."""

F = TypeVar("F", bound=type[LayerForm])


def form_for(layer: type[nn.Module]) -> Callable[[F], F]:
    """Decorate a class as the form of layers of exactly this type."""

    def decorate(form: F) -> F:
        FORMS[layer] = form()
        return form

    return decorate


def form_of(layer: nn.Module) -> LayerForm:
    """Return the form of a layer that has one (see :func:`has_form`)."""
    if type(layer) is HiddenLayer:
        return HiddenForm(layer)
    if type(layer) not in FORMS:
        from ergnn.nn.backbones import BACKBONES

        BACKBONES.names()  # imports all backbones, which register forms
    return FORMS[type(layer)]


def has_form(layer: nn.Module) -> bool:
    """Return whether this layer has a form that supports its configuration.

    Subclasses do not inherit a form, since their ``forward`` may differ.
    """
    try:
        return form_of(layer).supports(layer)
    except KeyError:
        return False


def reads_messages(conv: Any, *aggregations: str) -> bool:
    """Return whether a PyG convolution aggregates messages in the direction of edges, with one of ``aggregations``."""
    return conv.flow == "source_to_target" and conv.aggr in aggregations


class HiddenLayer(nn.Module):
    """``norm(conv(x) + residual(x))``: a convolution with a linear residual connection and a normalization.

    Args:
        conv: the convolution.
        fan_in, fan_out: number of input and output channels.
        norm: ``layer`` normalizes each row, ``batch`` each channel over all nodes of the graph; its running statistics
            are buffers, and the layer is computed on the whole graph, not on receptive fields.
        residual: whether to add a linear function of the input.
    """

    def __init__(self, conv: nn.Module, fan_in: int, fan_out: int, norm: Norm, residual: bool) -> None:
        super().__init__()
        self.conv = conv
        self.residual = nn.Linear(fan_in, fan_out) if residual else None
        norms = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
        self.norm = norms[norm](fan_out)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        h = self.conv(x, adj)
        normalized: Tensor = self.norm(h if self.residual is None else h + self.residual(x))
        return normalized


class HiddenForm(LayerForm):
    """The form of a :class:`HiddenLayer`, from the form of its convolution."""

    def __init__(self, layer: HiddenLayer) -> None:
        self.conv = form_of(layer.conv)
        residual = () if layer.residual is None else ("residual.weight",)
        self.aggregation = self.conv.aggregation
        self.projections = (*(f"conv.{name}" for name in self.conv.projections), *residual)

    def supports(self, conv: HiddenLayer) -> bool:
        return not isinstance(conv.norm, nn.BatchNorm1d) and self.conv.supports(conv.conv)

    def forward(self, conv: HiddenLayer, params: Params, h: Any, block: Block, drop: Any) -> Tensor:
        inner = {name.removeprefix("conv."): value for name, value in params.items() if name.startswith("conv.")}
        out = self.conv.forward(conv.conv, inner, h, block, drop)
        if conv.residual is not None:
            residual = block.at_targets(block.project(h, params["residual.weight"]))
            out = out + residual + block.dst.each(params["residual.bias"])
        if isinstance(conv.norm, nn.LayerNorm):
            out = nn.functional.layer_norm(out, out.shape[1:], eps=conv.norm.eps)
            out = out * block.dst.each(params["norm.weight"]) + block.dst.each(params["norm.bias"])
        return out


class Propagate(nn.Module):
    """Compute ``S^K x`` with ``S = D̃^-½ (A + I) D̃^-½``, the propagation of SGC, without parameters.

    This layer must precede all others. The engine computes it once; see :mod:`ergnn.engine.propagation`.
    """

    def __init__(self, hops: int) -> None:
        super().__init__()
        self.hops = hops

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        matrix = PlainAdjacency(edge_index, x.size(0), x.dtype)
        for _ in range(self.hops):
            x = matrix.matmul(x)
        return x


class PlainAdjacency:
    """``S`` of an edge index in PyG's operations, for modules that run without ergnn.

    Sums are ``scatter_add``, since ONNX Runtime computes what ``index_add`` becomes (ScatterND) with a data race.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int, dtype: torch.dtype) -> None:
        from torch_geometric.nn.conv.gcn_conv import gcn_norm

        (self.source, self.target), weight = gcn_norm(edge_index, None, num_nodes, dtype=dtype)
        self.weight = weight.unsqueeze(1)

    def matmul(self, x: Tensor) -> Tensor:
        index = self.target.unsqueeze(1).expand(-1, x.size(1))
        return torch.zeros_like(x).scatter_add(0, index, self.weight * x.index_select(0, self.source))
