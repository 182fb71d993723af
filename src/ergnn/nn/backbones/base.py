"""What every backbone is.

A backbone is an encoder (``convs``) and one or more output layers (``heads``), each of which is one more layer of
the same kind. ``forward(x, adj)`` is plain PyG; :mod:`ergnn.engine.objective` computes the same function on exact
receptive fields.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ergnn.errors import InputError
from ergnn.nn.layers import Propagate, form_of, has_form
from ergnn.registry import Registry

BACKBONES: Registry[type[Backbone]] = Registry("backbone", "ergnn.nn.backbones")


class Backbone(nn.Module):
    """Layers with dropout before and an activation after each, then an output layer.

    Args:
        out_channels: outputs of the first head; None starts without one.
        convs: the layers before the output layer, each called as ``conv(x, adj)``.
        activation: applied after each of ``convs``.
        dropout: probability of dropping an entry of the input of each layer and each head.

    Attributes:
        lr: the original paper's learning rate.
        weight_decay: its L2 factor (GraphSAGE's and GIN's papers name none: they take GCN's).
        embedding_size: width of :meth:`embed`.
    """

    lr: float = 0.01
    weight_decay: float = 5e-4

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
        """A new output layer that reads :meth:`embed`."""

    def add_head(self, out_channels: int) -> None:
        self.heads.append(self.make_head(out_channels))
        self.head_widths.append(out_channels)

    def embed(self, x: Tensor, adj: Tensor) -> Tensor:
        """The vectors that the output layer reads, ``[n, embedding_size]``."""
        for conv in self.convs:
            x = F.dropout(x, self.dropout, self.training) if not isinstance(conv, Propagate) else x
            x = conv(x) if isinstance(conv, nn.Linear) else conv(x, adj)
            x = self.activation(x)
        return x

    def forward(self, x: Tensor, adj: Tensor, head: int = 0) -> Tensor:
        """Scores ``[n, out_channels]``; ``adj`` is PyG's ``edge_index``."""
        h = F.dropout(self.embed(x, adj), self.dropout, self.training)
        last = self.heads[head]
        return last(h) if isinstance(last, nn.Linear) else last(h, adj)

    @property
    def dtype(self) -> torch.dtype:
        """Of the parameters; float32 where there are none."""
        return next((value.dtype for value in self.parameters()), torch.float32)

    @property
    def learned_layers(self) -> list[nn.Module]:
        """The layers of the encoder that are learned: ``convs`` without ``Propagate``."""
        return [conv for conv in self.convs if not isinstance(conv, Propagate)]

    @property
    def propagated_hops(self) -> int:
        """K of the ``S^K X`` that the first learned layer reads."""
        return sum(conv.hops for conv in self.convs if isinstance(conv, Propagate))

    @property
    def num_hops(self) -> int:
        """How many times a model that :attr:`runs_on_fields` reads neighbors, one head counted."""
        layers = [*self.learned_layers, *self.heads[:1]]
        return self.propagated_hops + sum(form_of(layer).aggregation is not None for layer in layers)

    @property
    def runs_on_fields(self) -> bool:
        """Whether every layer has a form on blocks (and ``embed`` and ``forward`` are the ones above).

        Every parameter must be a layer's own, ``Propagate`` comes before all that is learned (and nothing is applied
        after it), and attention heads are one where output layers are of unequal width.
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
