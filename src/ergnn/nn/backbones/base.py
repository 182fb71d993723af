"""Base class of backbones.

A backbone consists of an encoder (``convs``) and one or more output layers (``heads``) of the same type.
``forward(x, adj)`` is plain PyG; :mod:`ergnn.engine.objective` computes the same function on exact receptive fields.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ergnn.config.errors import InputError
from ergnn.config.registry import Registry
from ergnn.nn.layers import Propagate, form_of, has_form

BACKBONES: Registry[type[Backbone]] = Registry("backbone", "ergnn.nn.backbones")


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
    """

    lr: float = 0.01
    weight_decay: float = 5e-4
    sparse_input: bool = False

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

    @abstractmethod
    def make_head(self, out_channels: int) -> nn.Module:
        """Create an output layer, whose input is the output of :meth:`embed`."""

    def add_head(self, out_channels: int) -> None:
        self.heads.append(self.make_head(out_channels))
        self.head_widths.append(out_channels)

    def embed(self, x: Tensor, adj: Tensor) -> Tensor:
        """Compute the input of the output layer, ``[n, embedding_size]``."""
        for conv in self.convs:
            x = self._dropped(x) if not isinstance(conv, Propagate) else x
            x = conv(x) if isinstance(conv, nn.Linear) else conv(x, adj)
            x = self.activation(x)
        return x

    def forward(self, x: Tensor, adj: Tensor, head: int = 0) -> Tensor:
        """Compute scores ``[n, out_channels]``; ``adj`` is PyG's ``edge_index``."""
        h = self._dropped(self.embed(x, adj))
        last = self.heads[head]
        return last(h) if isinstance(last, nn.Linear) else last(h, adj)

    def _dropped(self, x: Tensor) -> Tensor:
        if x.layout != torch.sparse_csr:
            return F.dropout(x, self.dropout, self.training)
        value = F.dropout(x.values(), self.dropout, self.training)
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
        others = [part for name, part in self.named_children() if name not in ("convs", "heads")]
        complete = not self._parameters and not any(True for part in others for _ in part.parameters())
        first = self.convs[: len(self.convs) - len(self.learned_layers)]
        fixed = all(isinstance(conv, Propagate) for conv in first)
        linear = not len(first) or isinstance(self.activation, nn.Identity)
        padded = len(set(self.head_widths)) > 1 and any(getattr(head, "heads", 1) > 1 for head in self.heads)
        formed = all(has_form(layer) for layer in [*self.learned_layers, *self.heads])
        return standard and complete and fixed and linear and not padded and formed


def at_least_one(**sizes: int) -> None:
    """Raise an error if a size is below 1."""
    for name, value in sizes.items():
        if value < 1:
            raise InputError(f"{name} is {value}; at least 1 is needed")
