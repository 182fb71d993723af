"""Scores and losses as functions of parameters.

Training, Hessian products, influence and other methods' gradients all use ``logits(params)`` and
``losses(params)`` from here, with the parameters of one model or of several, stacked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from ergnn.data.graph import Graph
from ergnn.errors import InputError
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.features import DenseFeatures
from ergnn.nn.field import join_fields, make_field
from ergnn.nn.layers import DropoutStream, form_of
from ergnn.nn.plain import PlainModel

MASKED = -1e9
"""Score of an output that a head does not have (heads of unequal width are padded)."""

ParamDict = dict[str, Tensor]


class Objective(ABC):
    """Cross-entropy of a set of examples as a function of parameters.

    Attributes:
        targets, weights: of the examples, all models' one after another.
        heads: the heads in use.
        dropout_sites: how many dropout keys a forward pass uses.
    """

    targets: Tensor
    weights: Tensor
    heads: list[int]
    dropout_sites: int = 1

    @abstractmethod
    def parameters(self) -> ParamDict:
        """A copy of the parameters that the examples' scores depend on."""

    @abstractmethod
    def write_back(self, params: ParamDict) -> None:
        """Copy parameters into the models."""

    @abstractmethod
    def logits(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        """Scores ``[n, outputs]``; ``keys`` are dropout keys ``[sites, models]``, None is evaluation."""

    def losses(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        """Cross-entropy of each example, ``[n]`` (one term of Eq. 1 a node)."""
        return F.cross_entropy(self.logits(params, keys), self.targets, reduction="none")


def make_objective(
    models: Sequence[nn.Module], examples: Sequence[Examples], heads: list[int] | None = None
) -> Objective:
    """One objective for one model, or for several side by side (see :func:`can_stand_side_by_side`).

    Args:
        heads: the heads whose parameters are arguments; by default those that the examples use. Two objectives take
            the same parameters if their heads are the same.
    """
    if can_stand_side_by_side(models):
        return FieldObjective([model for model in models if isinstance(model, Backbone)], examples, heads)
    if len(models) != 1:
        raise InputError(
            "these models cannot be trained side by side: their layers differ, or one of them has no form on fields"
        )
    return PlainObjective(models[0], examples[0])


def can_stand_side_by_side(models: Sequence[nn.Module]) -> bool:
    """Whether the models run on fields, and are of one shape."""
    if not all(isinstance(model, Backbone) and model.runs_on_fields for model in models):
        return False
    return all(_shape(model) == _shape(models[0]) for model in models[1:])


def _shape(model: nn.Module) -> tuple[Any, ...]:
    values = [(name, value.shape, value.dtype) for name, value in model.named_parameters()]
    return type(model), model.dropout, values


def embed(model: nn.Module, graph: Graph, nodes: Tensor) -> Tensor:
    """What the output layer reads at ``nodes``, ``[n, embedding size]``."""
    if isinstance(model, Backbone) and model.runs_on_fields:
        return _embed_on_field(model, graph, nodes)
    if not hasattr(model, "embed"):
        raise InputError(f"{type(model).__name__} has no embed(x, adj); selectors in embedding space need one")
    with torch.no_grad():
        return _plain_call(model, model.embed, graph)[nodes]


class FieldObjective(Objective):
    """On exact receptive fields, for one or more models of one shape.

    The stacked parameters are ``convs.{i}.{name}``, ``[models, …]``, and ``head.{name}``, ``[models · heads, …]``,
    for the heads in use only; matrices are transposed to ``[in, out]``.
    """

    def __init__(
        self, models: Sequence[Backbone], examples: Sequence[Examples], heads: list[int] | None = None
    ) -> None:
        self.models = list(models)
        self.heads = torch.unique(examples[0].heads).tolist() if heads is None else heads
        fields = []
        for model, part in zip(models, examples, strict=True):
            local = _places(self.heads, part.heads)
            fields.append(make_field(model, part.graph, part.nodes, local, len(self.heads)))
        self.field = join_fields(fields)
        self.targets = torch.cat([part.targets for part in examples])
        self.weights = torch.cat([part.weights for part in examples])
        self.dropout_sites = 2 * len(models[0].convs) + 2
        self._encoder = _Encoder(models[0])
        self._head = models[0].heads[self.heads[0]]
        widths = [models[0].head_widths[head] for head in self.heads]
        self._outputs = examples[0].heads.size(1) * max(widths)
        self._missing = self._narrow(widths)

    def _narrow(self, widths: list[int]) -> Tensor | None:
        """The outputs that a row's head does not have, where heads are of unequal width."""
        if len(set(widths)) == 1 or self.field.head is None:
            return None
        each = self.targets.new_tensor(widths * len(self.models))[self.field.head.dst.slot]
        return torch.arange(max(widths), device=each.device) >= each.unsqueeze(1)

    def parameters(self) -> ParamDict:
        stacked = {}
        with torch.no_grad():
            for prefix, layers in self._layers():
                for name, _ in layers[0].named_parameters():
                    parts = [_flip(layer.get_parameter(name)) for layer in layers]
                    shape = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
                    stacked[prefix + name] = torch.stack([_pad(part, shape) for part in parts])
        return stacked

    def write_back(self, params: ParamDict) -> None:
        with torch.no_grad():
            for prefix, layers in self._layers():
                for name, _ in layers[0].named_parameters():
                    for layer, value in zip(layers, params[prefix + name], strict=True):
                        own = _flip(layer.get_parameter(name))
                        own.copy_(value[tuple(slice(size) for size in own.shape)])

    def _layers(self) -> list[tuple[str, list[nn.Module]]]:
        """Prefix of the stacked names → the layers that are stacked under it."""
        count = len(self.models[0].convs)
        encoder = [(f"convs.{i}.", [model.convs[i] for model in self.models]) for i in range(count)]
        return [*encoder, ("head.", [model.heads[head] for model in self.models for head in self.heads])]

    def logits(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        drop, block = DropoutStream(keys), self.field.head
        assert block is not None
        h = self._encoder(params, self.field, drop).index_select(0, self.field.take)
        h = drop(h, self.models[0].dropout, block.src_position, block.src_model)
        out = form_of(self._head)(self._head, _under("head.", params), h, block, drop)
        if self._missing is not None:
            out = out.masked_fill(self._missing, MASKED)
        return out.view(self.targets.numel(), self._outputs)


class _Encoder:
    """The layers before the heads, on a field."""

    def __init__(self, model: Backbone) -> None:
        self.dropout, self.activation = model.dropout, model.activation
        self.layers = [(i, conv) for i, conv in enumerate(model.convs) if any(True for _ in conv.parameters())]

    def __call__(self, params: ParamDict, field: Any, drop: DropoutStream) -> Tensor:
        h = field.features
        for (i, conv), block in zip(self.layers, field.layers, strict=True):
            h = drop.input(h, self.dropout, block)
            h = self.activation(form_of(conv)(conv, _under(f"convs.{i}.", params), h, block, drop))
        return h.value.to(next(iter(params.values())).dtype) if isinstance(h, DenseFeatures) else h


def _embed_on_field(model: Backbone, graph: Graph, nodes: Tensor) -> Tensor:
    params = {
        f"convs.{i}.{name}": _flip(value.detach()).unsqueeze(0)
        for i, conv in enumerate(model.convs)
        for name, value in conv.named_parameters()
    }
    field = make_field(model, graph, nodes)
    if not params:
        assert isinstance(field.features, DenseFeatures)
        return field.features.value
    with torch.no_grad():
        return _Encoder(model)(params, field, DropoutStream(None))


class PlainObjective(Objective):
    """On the whole graph, for any module with ``forward(x, adj)``.

    A :class:`Backbone` is called once for each head in use. Of a :class:`PlainModel` the outputs of head k are columns
    ``k · width`` to ``(k + 1) · width``.
    """

    def __init__(self, model: nn.Module, examples: Examples) -> None:
        self.model, self.examples = model, examples
        self.targets, self.weights = examples.targets, examples.weights
        self.heads = torch.unique(examples.heads).tolist()

    def parameters(self) -> ParamDict:
        return {name: value.detach().clone() for name, value in self.model.named_parameters()}

    def write_back(self, params: ParamDict) -> None:
        with torch.no_grad():
            for name, value in self.model.named_parameters():
                value.copy_(params[name])

    def logits(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        self.model.train(keys is not None)
        with torch.random.fork_rng(enabled=keys is not None):
            if keys is not None:
                torch.manual_seed(int(keys[0, 0]) & 0x7FFFFFFF)
            scores = self._scores(params)
        part = self.examples
        local = _places(self.heads, part.heads)
        return scores[part.nodes.unsqueeze(1), local].flatten(1)

    def _scores(self, params: ParamDict) -> Tensor:
        """``[nodes of the graph, heads in use, width]``."""
        graph = self.examples.graph
        x = graph.dense_x().to(next(iter(params.values())).dtype)
        if isinstance(self.model, Backbone):
            widths = self.model.head_widths
            parts = [functional_call(self.model, params, (x, graph.edge_index, head)) for head in self.heads]
            width = max(widths[head] for head in self.heads)
            return torch.stack([F.pad(part, (0, width - part.size(1)), value=MASKED) for part in parts], dim=1)
        assert isinstance(self.model, PlainModel)
        out, width = functional_call(self.model, params, (x, graph.edge_index)), self.model.head_width
        needed = (max(self.heads) + 1) * width
        if out.size(1) < needed:
            raise InputError(
                f"{type(self.model.module).__name__} has {out.size(1)} outputs, but {needed} are needed for "
                f"{max(self.heads) + 1} head(s) of {width}; build it wider, or use head='shared'"
            )
        return torch.stack([out[:, head * width : (head + 1) * width] for head in self.heads], dim=1)


def _places(heads: list[int], used: Tensor) -> Tensor:
    """Where each head stands in ``heads`` (ascending)."""
    known = used.new_tensor(heads)
    place = torch.searchsorted(known, used.contiguous()).clamp(max=len(heads) - 1)
    wrong = used[known[place] != used]
    if wrong.numel():
        raise InputError(f"examples are scored by head {int(wrong[0])}; the heads in use are {heads}")
    return place


def _plain_call(model: nn.Module, function: Any, graph: Graph) -> Tensor:
    model.eval()
    dtype = next((p.dtype for p in model.parameters()), torch.float32)
    return function(graph.dense_x().to(dtype), graph.edge_index)


def _under(prefix: str, params: ParamDict) -> ParamDict:
    return {name[len(prefix) :]: value for name, value in params.items() if name.startswith(prefix)}


def _flip(value: Tensor) -> Tensor:
    return value.t() if value.dim() == 2 else value


def _pad(value: Tensor, shape: list[int]) -> Tensor:
    if list(value.shape) == shape:
        return value
    out = value.new_zeros(shape)
    out[tuple(slice(size) for size in value.shape)] = value
    return out
