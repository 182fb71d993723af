"""Scores and losses as functions of parameters.

Training, Hessian products, influence and projected gradients all use these functions, ``logits(params)`` and
``losses(params)``, with the parameters of one model or the stacked parameters of several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from ergnn.config.errors import InputError
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.dropout_stream import DropoutStream
from ergnn.engine.features import DenseFeatures
from ergnn.engine.field import Field, join_fields, make_field
from ergnn.engine.losses import MASKED, Entry, Objective, ParamDict, head_positions
from ergnn.engine.per_example import gradient_sums
from ergnn.engine.plain import PlainObjective
from ergnn.engine.rows import RowObjective, is_rowwise
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.layers import Propagate, form_of


def make_objective(
    models: Sequence[nn.Module], examples: Sequence[Examples], heads: list[int] | None = None, lazy: bool = False
) -> Objective:
    """Create the objective of one model, or of several models trained side by side (see :func:`can_be_stacked`).

    Args:
        heads: heads whose parameters are arguments; by default those that the examples use. Two objectives have the
            same parameters if their heads are the same.
        lazy: leave fields until they are needed; see :meth:`Objective.prepare`.
    """
    if can_be_stacked(models):
        return FieldObjective([model for model in models if isinstance(model, Backbone)], examples, heads, lazy=lazy)
    if len(models) != 1:
        raise InputError(
            "these models cannot be trained side by side: their layers differ, or a layer has no registered form"
        )
    return PlainObjective(models[0], examples[0])


def can_be_stacked(models: Sequence[nn.Module]) -> bool:
    """Return whether all models run on fields and have the same architecture, so that they can be stacked."""
    shapes = [architecture(model) for model in models]
    return None not in shapes and all(shape == shapes[0] for shape in shapes)


def architecture(model: nn.Module | None) -> tuple[Any, ...] | None:
    """Return what models must have in common to be stacked; None for a model that does not run on fields."""
    if not isinstance(model, Backbone) or not model.runs_on_fields:
        return None
    values = [(name, value.shape, value.dtype) for name, value in model.named_parameters()]
    return type(model), model.dropout, values


class FieldObjective(Objective):
    """Objective on exact receptive fields, for one or more models of the same architecture.

    The stacked parameters are ``convs.{i}.{name}``, ``[models, …]``, and ``head.{name}``, ``[models · heads, …]``,
    for the heads in use only; matrices are transposed to ``[in, out]``.

    Args:
        heads, lazy: as for :func:`make_objective`.
        make: function that builds the field.
        sizes: number of examples of each model, if ``examples`` is one set for all models.
    """

    def __init__(
        self,
        models: Sequence[Backbone],
        examples: Sequence[Examples],
        heads: list[int] | None = None,
        make: Callable[..., Field] = make_field,
        lazy: bool = False,
        sizes: list[int] | None = None,
    ) -> None:
        self.models, self.examples, self._make, self._sizes = list(models), list(examples), make, sizes
        self.heads = torch.unique(examples[0].heads).tolist() if heads is None else heads
        self._local_heads = head_positions(self.heads, torch.cat([part.heads for part in examples]))
        self.targets = torch.cat([part.targets for part in examples])
        self.weights = torch.cat([part.weights for part in examples])
        # losses that are not known to be the same may synchronize with the GPU
        self.recordable = self.joins_losses
        self.dropout_sites = 2 * len(models[0].convs) + 2
        self._encoder = Encoder(models[0])
        self._head = models[0].heads[self.heads[0]]
        widths = [models[0].head_widths[head] for head in self.heads]
        self._outputs = examples[0].heads.size(1) * max(widths)
        if not lazy:
            self.prepare()

    @property
    def sizes(self) -> list[int]:
        return super().sizes if self._sizes is None else self._sizes

    @cached_property
    def fields(self) -> list[Field]:
        """One field for all models; on large graphs, one field per model."""
        made = []
        large = any(adjacency_of(part.graph).is_large for part in self.examples)
        pairs = zip(self.examples, self._local_heads.split([len(part) for part in self.examples]), strict=True)
        for _, run in groupby(pairs, lambda pair: id(pair[0].graph)):  # one set of operations per graph
            parts = list(run)
            made += [self._field([part]) for part in parts] if large else [self._field(parts)]
        return made if any(field.linked for field in made) else [join_fields(made)]

    def _field(self, parts: list[tuple[Examples, Tensor]]) -> Field:
        nodes, heads = torch.cat([part.nodes for part, _ in parts]), torch.cat([heads for _, heads in parts])
        sizes = self._sizes or [len(part) for part, _ in parts]
        return self._make(self.models[0], parts[0][0].graph, nodes, heads, len(self.heads), sizes=sizes)

    @property
    def field(self) -> Field:
        return self.fields[0]

    @cached_property
    def _missing(self) -> list[Tensor | None]:
        """For each field, a mask of the outputs that the head of each row does not have; None if all have the same."""
        widths = [self.models[0].head_widths[head] for head in self.heads]
        if len(set(widths)) == 1:
            return [None] * len(self.fields)
        columns = torch.arange(max(widths), device=self.targets.device)
        wide = self.targets.new_tensor(widths * len(self.models))
        return [None if field.head is None else columns >= wide[field.head.dst.slot, None] for field in self.fields]

    def part(self, model: int) -> Objective:
        """Return the objective of one of the models."""
        if len(self.models) == 1:
            return self
        return FieldObjective([self.models[model]], [self.examples[model]], self.heads, self._make, lazy=True)

    def with_models(self, models: Sequence[Backbone]) -> FieldObjective:
        """Return the objective of other models of the same architecture, with the same examples and fields."""
        other = copy(self)
        other.models = list(models)
        return other

    def prepare(self) -> None:
        self.linked = self.field.linked

    def parameters(self) -> ParamDict:
        return stack_parameters(self._layers())

    def write_back(self, params: ParamDict) -> None:
        with torch.no_grad():
            for prefix, layers in self._layers():
                for name, _ in layers[0].named_parameters():
                    for layer, value in zip(layers, params[prefix + name], strict=True):
                        own = _transpose(layer.get_parameter(name))
                        own.copy_(value[tuple(slice(size) for size in own.shape)])

    def by_name(self, params: ParamDict) -> ParamDict:
        out = {}
        for (prefix, layers), names in zip(self._layers(), self._name_prefixes(), strict=True):
            for name, _ in layers[0].named_parameters():
                for layer, value, own in zip(layers, params[prefix + name], names, strict=True):
                    shape = _transpose(layer.get_parameter(name)).shape
                    out[own + name] = _transpose(value[tuple(slice(size) for size in shape)])
        return out

    def from_names(self, values: ParamDict) -> ParamDict:
        stacked = {}
        for (prefix, layers), names in zip(self._layers(), self._name_prefixes(), strict=True):
            for name, _ in layers[0].named_parameters():
                parts = []
                for layer, own in zip(layers, names, strict=True):
                    like = layer.get_parameter(name).detach()
                    parts.append(_transpose(values[own + name] if own + name in values else torch.zeros_like(like)))
                stacked[prefix + name] = _stack(parts)
        return stacked

    def _name_prefixes(self) -> list[list[str]]:
        """Return the prefixes of parameter names in the model, for each entry of :meth:`_layers`."""
        encoder = [[f"convs.{i}."] for i in range(len(self._single_model.convs))]
        return [*encoder, [f"heads.{head}." for head in self.heads]]

    @property
    def _single_model(self) -> Backbone:
        if len(self.models) != 1:
            raise InputError(f"this operation requires one model; {len(self.models)} are trained side by side")
        return self.models[0]

    def batch(self, index: Tensor, weights: Tensor | None = None, key: int | None = None) -> Objective:
        part = self.examples[0][index]
        part = part if weights is None else part.weighted(weights)
        if self._is_rowwise:
            return RowObjective(self, self._single_model, part)
        return FieldObjective([self._single_model], [part], self.heads)

    @property
    def _is_rowwise(self) -> bool:
        """Whether :class:`RowObjective` computes the same."""
        one_head = is_rowwise(self._single_model) and len(self.heads) == 1
        return one_head and isinstance(self.field.features, DenseFeatures)

    def gradient_sums(self, params: ParamDict, entry: Entry = torch.square) -> ParamDict:
        """Compute ``Σ_i (∇ℓ_i)²`` for chunks of examples, each as a stacked model with a copy of the parameters."""
        if self._is_rowwise:
            return RowObjective(self, self._single_model, self.examples[0]).gradient_sums(params, entry)
        return gradient_sums(self._one_model_per_example, self.examples[0], params, entry)

    def _one_model_per_example(self, examples: Examples) -> FieldObjective:
        """Return the objective of one copy of the model per example."""
        alone, models = [examples], [self._single_model] * len(examples)
        large = adjacency_of(examples.graph).is_large
        if large or not (self.has_default_loss or self.joins_losses):  # a field and a loss for each example
            alone = [examples[one] for one in torch.arange(len(examples), device=examples.nodes.device).split(1)]
        return FieldObjective(models, alone, self.heads, self._make, sizes=None if large else [1] * len(examples))

    def _layers(self) -> list[tuple[str, list[nn.Module]]]:
        """Return pairs of a prefix of stacked names and the layers stacked under it."""
        count = len(self.models[0].convs)
        encoder = [(f"convs.{i}.", [model.convs[i] for model in self.models]) for i in range(count)]
        return [*encoder, ("head.", [model.heads[head] for model in self.models for head in self.heads])]

    def logits(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        if len(self.fields) == 1:
            return self._logits(0, params, keys)
        parts = []
        for i in range(len(self.models)):
            own = {name: value.chunk(len(self.models))[i] for name, value in params.items()}
            parts.append(self._logits(i, own, None if keys is None else keys[:, i : i + 1]))
        return torch.cat(parts)

    def _logits(self, part: int, params: ParamDict, keys: Tensor | None) -> Tensor:
        """Compute logits on one of the fields: that of all models, or of one model if the fields are not joined."""
        field, missing = self.fields[part], self._missing[part]
        drop, block = DropoutStream(keys), field.head
        assert block is not None
        h = field.head_inputs(self._encoder(params, field, drop))
        h = drop(h, self.models[0].dropout, block.src_position, block.src_model)
        out = form_of(self._head).forward(self._head, _with_prefix("head.", params), h, block, drop)
        if missing is not None:
            out = out.masked_fill(missing, MASKED)
        return out.view(-1, self._outputs)


class Encoder:
    """The layers before the heads, on a field."""

    def __init__(self, model: Backbone) -> None:
        self.dropout, self.activation = model.dropout, model.activation
        self.layers = [(i, conv) for i, conv in enumerate(model.convs) if not isinstance(conv, Propagate)]

    def __call__(self, params: ParamDict, field: Any, drop: DropoutStream) -> Tensor:
        h = field.features
        for (i, conv), block in zip(self.layers, field.layers, strict=True):
            h = drop.input(h, self.dropout, block)
            h = form_of(conv).forward(conv, _with_prefix(f"convs.{i}.", params), h, block, drop)
            h = block.dst.apply(self.activation, h)
        return h.value.to(next(iter(params.values())).dtype) if isinstance(h, DenseFeatures) else h


def _with_prefix(prefix: str, params: ParamDict) -> ParamDict:
    return {name[len(prefix) :]: value for name, value in params.items() if name.startswith(prefix)}


def stack_parameters(layers: Sequence[tuple[str, Sequence[nn.Module]]]) -> ParamDict:
    """Stack the parameters of the layers under each prefix, as copies."""
    stacked = {}
    with torch.no_grad():
        for prefix, alike in layers:
            for name, _ in alike[0].named_parameters():
                stacked[prefix + name] = _stack([_transpose(layer.get_parameter(name)) for layer in alike])
    return stacked


def _transpose(value: Tensor) -> Tensor:
    return value.t() if value.dim() == 2 else value


def _stack(parts: list[Tensor]) -> Tensor:
    shape = [max(sizes) for sizes in zip(*(part.shape for part in parts), strict=True)]
    return torch.stack([_pad(part, shape) for part in parts])


def _pad(value: Tensor, shape: list[int]) -> Tensor:
    if list(value.shape) == shape:
        return value
    out = value.new_zeros(shape)
    out[tuple(slice(size) for size in value.shape)] = value
    return out
