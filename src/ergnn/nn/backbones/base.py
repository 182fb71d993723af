"""Base class of backbones.

A backbone consists of an encoder (``convs``) and one or more output layers (``heads``) of the same type.
``forward(x, adj)`` is plain PyG; :mod:`ergnn.engine.objective` computes the same function on exact receptive fields.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ergnn.config.errors import InputError, check_at_least, check_choice
from ergnn.config.registry import Registry
from ergnn.nn.layers import HiddenLayer, Norm, Propagate, form_of, has_form

BACKBONES: Registry[type[Backbone]] = Registry("backbone", "ergnn.nn.backbones")
Output = Literal["auto", "conv", "linear"]


class Backbone(nn.Module):
    """Layers with dropout before and an activation after each, followed by an output layer.

    Args:
        out_channels: number of outputs of the first head; None for no head.
        convs: layers before the output layer, called as ``conv(x, adj)``.
        activation: function applied after each of ``convs``.
        dropout: dropout probability of the inputs of all layers and heads.

    Attributes:
        lr: learning rate of the original paper.
        weight_decay: L2 factor of the original paper (GCN's for GraphSAGE and GIN, whose papers do not specify one).
        embedding_size: width of :meth:`embed`.
        sparse_input: whether :meth:`embed` supports features in CSR form, because its first layer is linear in them.
        linear_output: whether output layers are linear, and features have no dropout; see :class:`ConvBackbone`.
    """

    lr: float = 0.01
    weight_decay: float = 5e-4
    sparse_input: bool = False
    linear_output: bool = False

    def __init__(
        self,
        out_channels: int | None,
        convs: list[nn.Module],
        activation: Callable[[Tensor], Tensor],
        dropout: float,
        embedding_size: int,
    ) -> None:
        super().__init__()
        if not 0.0 <= dropout < 1.0:
            raise InputError(f"dropout is {dropout}; it must be 0 or more and below 1")
        self.convs = nn.ModuleList(convs)
        self.heads = nn.ModuleList()
        self.head_widths: list[int] = []
        self.activation = activation
        self.dropout = dropout
        self.embedding_size = embedding_size
        if out_channels is not None:
            self.add_head(out_channels)

    def make_head(self, out_channels: int) -> nn.Module:
        """Create an output layer, whose input is the output of :meth:`embed`; by default linear."""
        return nn.Linear(self.embedding_size, out_channels)

    def add_head(self, out_channels: int) -> None:
        make_head = Backbone.make_head if self.linear_output else type(self).make_head
        self.heads.append(make_head(self, out_channels))
        self.head_widths.append(out_channels)

    def embed(self, x: Tensor, adj: Tensor) -> Tensor:
        """Compute the input of the output layer, ``[n, embedding_size]``."""
        for i, conv in enumerate(self.convs):
            x = x if isinstance(conv, Propagate) else self._dropped(x, self.input_dropout(i))
            x = conv(x) if isinstance(conv, nn.Linear) else conv(x, adj)
            x = self.activation(x)
        return x

    def forward(self, x: Tensor, adj: Tensor, head: int = 0) -> Tensor:
        """Compute scores ``[n, out_channels]``; ``adj`` is PyG's ``edge_index``."""
        h = self._dropped(self.embed(x, adj), self.dropout)
        last = self.heads[head]
        return last(h) if isinstance(last, nn.Linear) else last(h, adj)

    def input_dropout(self, layer: int) -> float:
        """Return the dropout probability of the inputs of a layer, by its position in ``convs``."""
        return 0.0 if layer == 0 and self.linear_output else self.dropout

    def _dropped(self, x: Tensor, p: float) -> Tensor:
        if x.layout != torch.sparse_csr:
            return F.dropout(x, p, self.training)
        value = F.dropout(x.values(), p, self.training)
        return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), value, x.shape, check_invariants=False)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the parameters; float32 if there are none."""
        return next((value.dtype for value in self.parameters()), torch.float32)

    @property
    def learned_layers(self) -> list[nn.Module]:
        """Layers of the encoder with parameters: ``convs`` without ``Propagate``."""
        return [conv for conv in self.convs if not isinstance(conv, Propagate)]

    @property
    def propagated_hops(self) -> int:
        """K of ``S^K X``, the input of the first learned layer."""
        return sum(conv.hops for conv in self.convs if isinstance(conv, Propagate))

    @property
    def num_hops(self) -> int:
        """Number of layers that aggregate neighbors, including one head, if :attr:`runs_on_fields`."""
        layers = [*self.learned_layers, *self.heads[:1]]
        return self.propagated_hops + sum(form_of(layer).aggregation is not None for layer in layers)

    @property
    def runs_on_fields(self) -> bool:
        """Whether the engine can compute the model on receptive fields.

        This requires that every layer has a form, that ``embed`` and ``forward`` are not overridden, that all
        parameters belong to layers, that ``Propagate`` precedes all learned layers without an activation after it,
        and that output layers of different widths have one attention head.
        """
        cls = type(self)
        standard = cls.embed is Backbone.embed and cls.forward is Backbone.forward
        complete = all(name.startswith(("convs.", "heads.")) for name, _ in self.named_parameters())
        first = self.convs[: len(self.convs) - len(self.learned_layers)]
        fixed = all(isinstance(conv, Propagate) for conv in first)
        linear = not len(first) or isinstance(self.activation, nn.Identity)
        padded = len(set(self.head_widths)) > 1 and any(getattr(head, "heads", 1) > 1 for head in self.heads)
        formed = all(has_form(layer) for layer in [*self.learned_layers, *self.heads])
        return standard and complete and fixed and linear and not padded and formed


class ConvBackbone(Backbone):
    """Hidden layers of one type of convolution, and an output layer.

    With a linear output layer it is the network of Luo et al. (2024): every hidden layer computes ``dropout(relu(norm(
    conv(h) + residual(h))))``.

    Args:
        hidden: number of units per hidden layer (of GAT, per attention head).
        layers: number of hidden layers, without the output layer.
        norm: normalization of hidden layers: ``none``, ``layer`` (of each node), or ``batch`` (over all nodes of the
            graph; the network is then computed on the whole graph, not on receptive fields).
        residual: add a linear function of a hidden layer's input to its output.
        dropout: dropout probability of the inputs of all layers.
        output: output layer: ``conv``, a convolution; ``linear``, which also leaves features without dropout;
            ``auto``, linear with layer norm or residual, otherwise a convolution.

    Attributes:
        projects_first: whether a convolution multiplies its input by a matrix before anything else.
    """

    attention_heads: int = 1
    projects_first: bool = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        hidden: int = 16,
        layers: int = 1,
        norm: Norm = "none",
        residual: bool = False,
        dropout: float = 0.5,
        output: Output = "auto",
    ) -> None:
        check_at_least(1, hidden=hidden, layers=layers)
        check_choice("norm", norm, Norm)
        check_choice("output", output, Output)
        self.linear_output = output == "linear" or (output == "auto" and (residual or norm == "layer"))
        self.sparse_input = self.projects_first and norm == "batch" and not residual
        self.dropout = dropout
        width, convs = hidden * self.attention_heads, list[nn.Module]()
        for fan_in in [in_channels, *[width] * (layers - 1)]:
            conv = self.make_conv(fan_in, hidden)
            plain = norm == "none" and not residual
            convs.append(conv if plain else HiddenLayer(conv, fan_in, width, norm, residual))
        super().__init__(out_channels, convs, F.relu, dropout, width)

    @abstractmethod
    def make_conv(self, fan_in: int, fan_out: int) -> nn.Module:
        """Create the convolution of a hidden layer."""

    def make_head(self, out_channels: int) -> nn.Module:
        return self.make_conv(self.embedding_size, out_channels)
