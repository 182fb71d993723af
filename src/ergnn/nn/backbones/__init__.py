"""GNN backbones on PyG's layers, set as in their original papers.

A backbone is an encoder (``convs``) and one or more output layers (``heads``), each of which is one more layer of
the same kind. ``forward(x, adj)`` is plain PyG; :mod:`ergnn.engine.objective` computes the same function on exact
receptive fields.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv

from ergnn.engine.layers import Propagate, has_form
from ergnn.errors import InputError
from ergnn.registry import Registry

BACKBONES: Registry[type[Backbone]] = Registry("backbone", "ergnn.nn.backbones")


class Backbone(nn.Module):
    """Layers with dropout before and an activation after each, then an output layer.

    Args:
        out_channels: outputs of the first head; None starts without one.
        convs: the layers before the output layer, each called as ``conv(x, adj)``.
        activation: applied after each of ``convs``.
        dropout: applied to what each layer and each head reads.

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
    def runs_on_fields(self) -> bool:
        """Whether every layer has a form on blocks (and ``embed`` and ``forward`` are the ones above).

        Every parameter must be a layer's own, ``Propagate`` comes before all that is learnt (and nothing is applied
        after it), and attention heads are one where output layers are of unequal width.
        """
        cls = type(self)
        standard = cls.embed is Backbone.embed and cls.forward is Backbone.forward
        fixed = [conv for conv in self.convs if isinstance(conv, Propagate)]
        layers = [*list(self.convs)[len(fixed) :], *self.heads]
        others: list[nn.Module] = [
            *fixed,
            *(part for name, part in self.named_children() if name not in ("convs", "heads")),
        ]
        complete = not self._parameters and not any(True for part in others for _ in part.parameters())
        linear = not fixed or isinstance(self.activation, nn.Identity)
        padded = len(set(self.head_widths)) > 1 and any(getattr(head, "heads", 1) > 1 for head in self.heads)
        return standard and complete and linear and not padded and all(has_form(layer) for layer in layers)


@BACKBONES.register("gat", help="graph attention, 8 heads × 8 (Veličković et al. 2018)")
class GAT(Backbone):
    """Graph attention network: 8 heads of 8 channels, ELU, dropout 0.6 on inputs and on attention."""

    lr = 0.005

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        hidden: int = 8,
        heads: int = 8,
        dropout: float = 0.6,
    ) -> None:
        _at_least_one(hidden=hidden, heads=heads)
        convs: list[nn.Module] = [GATConv(in_channels, hidden, heads=heads, dropout=dropout)]
        super().__init__(out_channels, convs, F.elu, dropout, hidden * heads)

    def make_head(self, out_channels: int) -> nn.Module:
        return GATConv(self.embedding_size, out_channels, heads=1, concat=False, dropout=self.dropout)


@BACKBONES.register("gcn", help="graph convolution, 16 hidden units (Kipf and Welling 2017)")
class GCN(Backbone):
    """Graph convolutional network: 16 hidden units, ReLU, dropout 0.5."""

    def __init__(
        self, in_channels: int, out_channels: int | None = None, hidden: int = 16, dropout: float = 0.5
    ) -> None:
        _at_least_one(hidden=hidden)
        super().__init__(out_channels, [GCNConv(in_channels, hidden)], F.relu, dropout, hidden)

    def make_head(self, out_channels: int) -> nn.Module:
        return GCNConv(self.embedding_size, out_channels)


@BACKBONES.register("sage", aliases=("graphsage",), help="GraphSAGE with mean aggregation (Hamilton et al. 2017)")
class SAGE(Backbone):
    """GraphSAGE with the mean aggregator: 128 hidden units, ReLU, no dropout."""

    def __init__(
        self, in_channels: int, out_channels: int | None = None, hidden: int = 128, dropout: float = 0.0
    ) -> None:
        _at_least_one(hidden=hidden)
        super().__init__(out_channels, [SAGEConv(in_channels, hidden)], F.relu, dropout, hidden)

    def make_head(self, out_channels: int) -> nn.Module:
        return SAGEConv(self.embedding_size, out_channels)


@BACKBONES.register("gin", help="graph isomorphism network, two-layer MLPs (Xu et al. 2019)")
class GIN(Backbone):
    """Graph isomorphism network (GIN-0): sums over neighbours, MLPs of one hidden layer, 16 units, dropout 0.5.

    The original normalises each layer over the batch. Here it does not: running statistics of one task are wrong
    for the next, and with them a node's output would depend on nodes outside its receptive field.
    """

    def __init__(
        self, in_channels: int, out_channels: int | None = None, hidden: int = 16, dropout: float = 0.5
    ) -> None:
        _at_least_one(hidden=hidden)
        convs: list[nn.Module] = [GINConv(_mlp(in_channels, hidden, hidden))]
        super().__init__(out_channels, convs, F.relu, dropout, hidden)

    def make_head(self, out_channels: int) -> nn.Module:
        return GINConv(_mlp(self.embedding_size, self.embedding_size, out_channels))


def _at_least_one(**sizes: int) -> None:
    for name, value in sizes.items():
        if value < 1:
            raise InputError(f"{name} is {value}; at least 1 is needed")


def _mlp(fan_in: int, hidden: int, fan_out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(fan_in, hidden), nn.ReLU(), nn.Linear(hidden, fan_out))


@BACKBONES.register("sgc", help="simplified graph convolution, a linear model on S²X (Wu et al. 2019)")
class SGC(Backbone):
    """Simplified graph convolution: softmax regression on ``S^K X``."""

    lr = 0.2
    weight_decay = 5e-6

    def __init__(self, in_channels: int, out_channels: int | None = None, hops: int = 2) -> None:
        _at_least_one(hops=hops)
        super().__init__(out_channels, [Propagate(hops)], nn.Identity(), 0.0, in_channels)

    def make_head(self, out_channels: int) -> nn.Module:
        return nn.Linear(self.embedding_size, out_channels)


@BACKBONES.register("mlp", help="two hidden layers that never look at the graph")
class MLP(Backbone):
    """Multilayer perceptron: two hidden layers of 256 ReLU units."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int | None = None,
        hidden: int = 256,
        layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        _at_least_one(hidden=hidden)
        sizes = [in_channels] + [hidden] * layers
        convs: list[nn.Module] = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        super().__init__(out_channels, convs, F.relu, dropout, sizes[-1])

    def make_head(self, out_channels: int) -> nn.Module:
        return nn.Linear(self.embedding_size, out_channels)
