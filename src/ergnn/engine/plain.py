"""Wrap any module as a model with heads, and compute the losses of any module on the whole graph."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph
from ergnn.engine.cache import Cache
from ergnn.engine.features import sparse_x
from ergnn.engine.losses import MASKED, Objective, ParamDict, head_positions
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.seeding import seeded


class PlainModel(nn.Module):
    """Any module with ``forward(x, adj)``, whose output columns are divided among the heads in order.

    Heads can have different widths: with tasks of 4, 4 and 3 classes, head 2 has columns 8 to 10.

    Args:
        module: called with dense features and PyG's ``edge_index``.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.head_widths: list[int] = []

    def add_head(self, out_channels: int) -> None:
        self.head_widths.append(out_channels)

    def columns(self, head: int) -> slice:
        """Return the output columns of a head."""
        start = sum(self.head_widths[:head])
        return slice(start, start + self.head_widths[head])

    def num_outputs(self, graph: Graph) -> int:
        """Return the number of outputs of the module, from a forward pass in evaluation mode."""
        self.to(graph.device).eval()
        with torch.no_grad():
            return int(self(_dense_x(graph), graph.edge_index).size(1))

    def check_outputs(self, outputs: int) -> None:
        """Raise an error if the module has fewer outputs than its heads need."""
        needed = sum(self.head_widths)
        if outputs < needed:
            name, heads = type(self.module).__name__, " + ".join(map(str, self.head_widths))
            raise InputError(
                f"{name} has {outputs} outputs, but {needed} are needed, one per class of each head ({heads}); build "
                f"it with {needed} outputs, or use head='shared' if the task of a node is known"
            )

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return self.module(x, adj)

    def embed(self, x: Tensor, adj: Tensor) -> Tensor:
        inner = getattr(self.module, "embed", None)
        if inner is None:
            raise InputError(
                f"{type(self.module).__name__} has no embed(x, adj); selectors in embedding space need one"
            )
        return inner(x, adj)


_DENSE: Cache[Tensor] = Cache()


def _dense_x(graph: Graph) -> Tensor:
    """Return the graph's features as a dense matrix; that of sparse features is cached."""
    return _DENSE.get([graph.x], graph.dense_x) if graph.is_sparse else graph.x


class PlainObjective(Objective):
    """Objective on the whole graph, for any module with ``forward(x, adj)``.

    A :class:`Backbone` is called once per head in use, a :class:`PlainModel` once for all heads.
    """

    def __init__(self, model: nn.Module, examples: Examples) -> None:
        self.model, self.examples = model, [examples]
        self.targets, self.weights = examples.targets, examples.weights
        self.heads = torch.unique(examples.heads).tolist()
        self._x = _dense_x(examples.graph)  # not under a torch.func transform, which does not support sparse x
        self._sparse = None
        if isinstance(model, Backbone) and model.sparse_input and not self._x.is_cuda:
            self._sparse = sparse_x(examples.graph)

    def parameters(self) -> ParamDict:
        return {name: value.detach().clone() for name, value in self.model.named_parameters()}

    def write_back(self, params: ParamDict) -> None:
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                value.copy_(params[name])

    def by_name(self, params: ParamDict) -> ParamDict:
        return dict(params)

    def from_names(self, values: ParamDict) -> ParamDict:
        return {name: values.get(name, torch.zeros_like(own)) for name, own in self.parameters().items()}

    def buffers(self) -> ParamDict:
        return dict(self.model.named_buffers())

    def batch(self, index: Tensor, weights: Tensor | None = None, key: int | None = None) -> Objective:
        part = self.examples[0][index]
        return PlainObjective(self.model, part if weights is None else part.weighted(weights))

    def logits(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        self.model.train(keys is not None)
        if keys is None:
            scores = self._scores(params, self._x)
        else:
            with seeded(int(keys[0, 0]) & 0x7FFFFFFF, self.targets.device):
                scores = self._scores(params, self._x if self._sparse is None else self._sparse)
        part = self.examples[0]
        local = head_positions(self.heads, part.heads)
        return scores[part.nodes.unsqueeze(1), local].flatten(1)

    def _scores(self, params: ParamDict, x: Tensor) -> Tensor:
        """Compute the scores of all nodes, ``[nodes, heads in use, width]``."""
        graph = self.examples[0].graph
        x = x.to(next(iter(params.values())).dtype)
        if isinstance(self.model, Backbone):
            parts = [functional_call(self.model, params, (x, graph.edge_index, head)) for head in self.heads]
        else:
            assert isinstance(self.model, PlainModel)
            out = functional_call(self.model, params, (x, graph.edge_index))
            self.model.check_outputs(out.size(1))
            parts = [out[:, self.model.columns(head)] for head in self.heads]
        width = max(part.size(1) for part in parts)
        return torch.stack([F.pad(part, (0, width - part.size(1)), value=MASKED) for part in parts], dim=1)
