"""Scores and losses as functions of parameters.

Training, Gauss-Newton products, influence and projected gradients all use these functions, ``logits(params)`` and
``losses(params)``, with the parameters of one model or the stacked parameters of several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import chain, groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ergnn.config.errors import InputError
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.dropout import DropoutStream
from ergnn.engine.field import Field, make_field
from ergnn.engine.losses import (
    MASKED,
    Entry,
    Objective,
    ParamDict,
    PlainObjective,
    gradients,
    head_positions,
    leaves_of,
)
from ergnn.engine.sampling import Sampling
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.layers import form_of

GRADIENT_ENTRIES = 1 << 23
"""Maximum number of entries of the gradients of single examples that are computed at once."""
GRADIENT_EXAMPLES = 64
"""Maximum number of examples whose gradients are computed at once."""
GPU_CHUNKS = 16
"""On a GPU, up to this many times more gradients are computed at once."""
GPU_DENSE_ENTRIES = 1 << 28
"""Maximum number of dense feature entries that the additional gradients on a GPU read."""


def make_objective(
    models: Sequence[nn.Module],
    examples: Sequence[Examples],
    heads: list[int] | None = None,
    lazy: bool = False,
    sampling: Sampling | None = None,
) -> Objective:
    """Create the objective of one model, or of several models trained side by side (see :func:`can_be_stacked`).

    Args:
        heads: heads whose parameters are arguments; by default those that the examples use. Two objectives have the
            same parameters if their heads are the same.
        lazy: leave fields until they are needed.
        sampling: sample neighbors for each batch of one model; the field of all examples is not built.
    """
    if sampling is not None:
        sampling.check(models[0])
    if can_be_stacked(models):
        stacked = [model for model in models if isinstance(model, Backbone)]
        return FieldObjective(stacked, examples, heads, lazy=lazy or sampling is not None, sampling=sampling)
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
    return type(model), model.dropout, model.linear_output, values


class FieldObjective(Objective):
    """Objective on receptive fields, for one or more models of the same architecture.

    The stacked parameters are ``convs.{i}.{name}``, ``[models, …]``, and ``head.{name}``, ``[models · heads, …]``,
    for the heads in use only; matrices are transposed to ``[in, out]``.

    Args:
        heads, lazy: as for :func:`make_objective`.
        sampling: how to sample neighbors, with ``key``; by default all neighbors are used.
    """

    def __init__(
        self,
        models: Sequence[Backbone],
        examples: Sequence[Examples],
        heads: list[int] | None = None,
        lazy: bool = False,
        sampling: Sampling | None = None,
        key: int = 0,
    ) -> None:
        self.models, self.examples = list(models), list(examples)
        self.sampling, self.key = sampling, key
        self.heads = torch.unique(examples[0].heads).tolist() if heads is None else heads
        self._local_heads = head_positions(self.heads, torch.cat([of_model.heads for of_model in examples]))
        self.targets = torch.cat([of_model.targets for of_model in examples])
        self.weights = torch.cat([of_model.weights for of_model in examples])
        # losses that are not known to be the same may synchronize with the GPU
        self.recordable = self.joins_losses
        self.dropout_sites = 2 * len(models[0].convs) + 2
        self._head = models[0].heads[self.heads[0]]
        widths = [models[0].head_widths[head] for head in self.heads]
        self._outputs = examples[0].heads.size(1) * max(widths)
        if not lazy:
            _ = self.fields

    @cached_property
    def fields(self) -> list[Field]:
        """The fields: one for consecutive models on the same graph; on a large graph, one for each model."""
        fields = []
        pairs = zip(self.examples, self._local_heads.split(self.sizes), strict=True)
        for _, run in groupby(pairs, lambda pair: id(pair[0].graph)):
            same_graph = list(run)
            linked = self.sampling is None and adjacency_of(same_graph[0][0].graph).is_large
            fields += [self._field(group) for group in ([[pair] for pair in same_graph] if linked else [same_graph])]
        return fields

    def _field(self, pairs: list[tuple[Examples, Tensor]]) -> Field:
        nodes, heads = torch.cat([examples.nodes for examples, _ in pairs]), torch.cat([heads for _, heads in pairs])
        graph, sizes = pairs[0][0].graph, [len(examples) for examples, _ in pairs]
        return make_field(self.models[0], graph, nodes, heads, len(self.heads), self.sampling, self.key, sizes)

    @property
    def field(self) -> Field:
        return self.fields[0]

    @cached_property
    def _missing(self) -> list[Tensor | None]:
        """For each field, a mask of the outputs that the head of each row does not have; None if all have the same."""
        widths = [self.models[0].head_widths[head] for head in self.heads]
        if len(set(widths)) == 1:
            return [None] * len(self.fields)
        columns, wide = torch.arange(max(widths), device=self.targets.device), self.targets.new_tensor(widths)
        slots = [None if field.head is None else field.head.dst.slot % len(widths) for field in self.fields]
        return [None if slot is None else columns >= wide[slot, None] for slot in slots]

    @property
    def linked(self) -> bool:
        return self.field.linked

    def _stacked(self) -> Iterator[tuple[str, list[tuple[str, Tensor]]]]:
        """Yield the name of each stacked parameter, and name and value of the parameters stacked under it."""
        for name, _ in self.models[0].convs.named_parameters(prefix="convs"):
            yield name, [(name, model.get_parameter(name)) for model in self.models]
        for name, _ in self._head.named_parameters():
            of_heads = [f"heads.{head}.{name}" for head in self.heads]
            yield f"head.{name}", [(key, model.get_parameter(key)) for model in self.models for key in of_heads]

    def parameters(self) -> ParamDict:
        return {name: _stack([value.detach() for _, value in values]) for name, values in self._stacked()}

    def write_back(self, params: ParamDict) -> None:
        with torch.no_grad():
            for name, values in self._stacked():
                for (_, value), stacked in zip(values, params[name], strict=True):
                    value.copy_(_unstack(stacked, value))

    def by_name(self, params: ParamDict) -> ParamDict:
        self._require_one_model()
        return {
            key: _unstack(stacked, value)
            for name, values in self._stacked()
            for (key, value), stacked in zip(values, params[name], strict=True)
        }

    def from_names(self, values: ParamDict) -> ParamDict:
        self._require_one_model()
        return {
            name: _stack([values.get(key, torch.zeros_like(value.detach())) for key, value in stacked])
            for name, stacked in self._stacked()
        }

    def _require_one_model(self) -> Backbone:
        if len(self.models) != 1:
            raise InputError(f"this operation requires one model; {len(self.models)} are trained side by side")
        return self.models[0]

    def batch(self, index: Tensor, weights: Tensor | None = None, key: int | None = None) -> FieldObjective:
        model, examples = self._require_one_model(), self.examples[0].select(index, weights)
        if self._is_rowwise:
            return RowObjective(model, examples, self.heads)
        key = self.key if key is None else key
        return FieldObjective([model], [examples], self.heads, sampling=self.sampling, key=key)

    @property
    def _is_rowwise(self) -> bool:
        """Whether :class:`RowObjective` computes the same: all layers are linear, with one head and dense features."""
        model = self._require_one_model()
        linear = all(type(layer) is nn.Linear for layer in [*model.convs, *model.heads]) and self.sampling is None
        return linear and len(self.heads) == 1 and isinstance(self.field.features, Tensor)

    def gradient_sums(self, params: ParamDict, entry: Entry = torch.square) -> ParamDict:
        """Compute ``Σ_i (∇ℓ_i)²`` for chunks of examples, each as a stacked model with a copy of the parameters."""
        examples = self.examples[0]
        if self._is_rowwise:
            return RowObjective(self.models[0], examples, self.heads).gradient_sums(params, entry)
        total = {name: torch.zeros_like(value) for name, value in params.items()}
        per_example = sum(value.numel() for value in params.values())
        smallest = max(1, min(GRADIENT_EXAMPLES, GRADIENT_ENTRIES // per_example))
        largest = smallest * (GPU_CHUNKS if examples.nodes.is_cuda else 1)
        start, count = 0, largest if examples.graph.is_sparse else smallest
        while start < len(examples):
            single = [examples[slice(i, i + 1)] for i in range(start, min(start + count, len(examples)))]
            models = len(single)
            chunk = FieldObjective(self.models * models, single, self.heads, sampling=self.sampling, key=self.key)
            copies = leaves_of({name: p.detach().repeat(models, *[1] * (p.dim() - 1)) for name, p in params.items()})
            for name, grad in gradients(chunk.losses(copies).sum(), copies).items():
                total[name] += entry(grad.view(models, *total[name].shape)).sum(0)
            start += models
            if not chunk.linked:
                dense = chunk.field.features.numel() if isinstance(chunk.field.features, Tensor) else 0
                count = max(smallest, min(largest, GPU_DENSE_ENTRIES * models // max(dense, 1)))
        return total

    def logits(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        if len(self.fields) == 1:
            return self._logits(0, params, keys)
        sizes, models = [field.models for field in self.fields], len(self.models)
        rows = {name: value.split([value.size(0) // models * n for n in sizes]) for name, value in params.items()}
        by_field = [None] * len(sizes) if keys is None else keys.split(sizes, dim=1)
        return torch.cat(
            [self._logits(i, {name: row[i] for name, row in rows.items()}, by_field[i]) for i in range(len(sizes))]
        )

    def _logits(self, number: int, params: ParamDict, keys: Tensor | None) -> Tensor:
        """Compute logits on one of the fields, with parameters and keys of its models."""
        field, missing = self.fields[number], self._missing[number]
        drop, block = DropoutStream(keys), field.head
        assert block is not None
        h = field.head_inputs(encode(self.models[0], params, field, drop))
        h = drop(h, self.models[0].dropout, block.src_position, block.src_model)
        out = form_of(self._head).forward(self._head, _with_prefix("head.", params), h, block, drop)
        if missing is not None:
            out = out.masked_fill(missing, MASKED)
        return out.view(-1, self._outputs)


class RowObjective(FieldObjective):
    """Objective of a multilayer perceptron with one head in use, on rows of a feature matrix.

    A batch selects rows of that matrix. The gradient of a layer for one example is the outer product of the layer's
    input and the gradient of its output.
    """

    def __init__(self, model: Backbone, examples: Examples, heads: list[int]) -> None:
        super().__init__([model], [examples], heads, lazy=True)
        self.x = examples.graph.rows(examples.nodes).to(model.dtype)
        self.recordable = False
        self._names = [*(f"convs.{i}" for i in range(len(model.convs))), "head"]

    def batch(self, index: Tensor, weights: Tensor | None = None, key: int | None = None) -> RowObjective:
        other, examples = copy(self), self.examples[0].select(index, weights)
        vars(other).pop("joint_extras", None)
        other.x, other.examples = self.x[index], [examples]
        other.targets, other.weights = examples.targets, examples.weights
        return other

    def logits(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        return self._forward(params, keys)[0]

    def _forward(
        self, params: ParamDict, keys: Tensor | None = None, offsets: list[Tensor] | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the scores and the input of each layer; ``offsets`` are added to the output of each layer."""
        drop, p, activation = DropoutStream(keys), self.models[0].dropout, self.models[0].activation
        rows = torch.arange(self.x.size(0), dtype=torch.int32, device=self.x.device) if p and keys is not None else None
        h, inputs = self.x, []
        for i, name in enumerate(self._names):
            h = activation(h) if i else h
            h = h if rows is None else drop(h, p, rows, torch.zeros_like(rows))
            inputs.append(h)
            h = torch.addmm(params[f"{name}.bias"], h, params[f"{name}.weight"].squeeze(0))
            h = h if offsets is None else h + offsets[i]
        return h, inputs

    def gradient_sums(self, params: ParamDict, entry: Entry = torch.square) -> ParamDict:
        """Compute ``Σ_i (∇ℓ_i)²``: the gradient of ``W`` for one example is ``a δᵀ``, and its square ``a² (δ²)ᵀ``."""
        fixed = {name: value.detach() for name, value in params.items()}
        biases = [fixed[f"{name}.bias"] for name in self._names]
        offsets = [bias.new_zeros(self.x.size(0), bias.size(1)).requires_grad_() for bias in biases]
        logits, inputs = self._forward(fixed, None, offsets)
        loss = self.loss(logits).sum()
        total = {}
        for name, a, delta in zip(self._names, inputs, torch.autograd.grad(loss, offsets), strict=True):
            total[f"{name}.weight"] = (entry(a.detach()).T @ entry(delta)).unsqueeze(0)
            total[f"{name}.bias"] = entry(delta).sum(0, keepdim=True)
        return {name: total[name] for name in params}


def encode(model: Backbone, params: ParamDict, field: Field, drop: DropoutStream) -> Tensor:
    """Compute the layers before the heads on a field, with stacked parameters."""
    h: Any = field.features
    first = len(model.convs) - len(model.learned_layers)
    for i, (conv, block) in enumerate(zip(model.learned_layers, field.layers, strict=True), first):
        h = drop.input(h, model.input_dropout(i), block, is_first=i == first)
        h = form_of(conv).forward(conv, _with_prefix(f"convs.{i}.", params), h, block, drop)
        h = block.dst.apply(model.activation, h)
    return h


def encoder_parameters(models: Sequence[Backbone]) -> ParamDict:
    """Stack the parameters of the layers before the heads, as copies."""
    names = [name for name, _ in models[0].convs.named_parameters(prefix="convs")]
    return {name: _stack([model.get_parameter(name).detach() for model in models]) for name in names}


def _with_prefix(prefix: str, params: ParamDict) -> ParamDict:
    return {name[len(prefix) :]: value for name, value in params.items() if name.startswith(prefix)}


def transposed(value: Tensor) -> Tensor:
    return value.t() if value.dim() == 2 else value


def _stack(values: list[Tensor]) -> Tensor:
    """Stack parameters, with matrices transposed, and padded with zeros to the same shape."""
    values = [transposed(value) for value in values]
    shape = [max(sizes) for sizes in zip(*(value.shape for value in values), strict=True)]
    return torch.stack([value if list(value.shape) == shape else _pad(value, shape) for value in values])


def _pad(value: Tensor, shape: list[int]) -> Tensor:
    ends = [(0, size - now) for size, now in zip(shape, value.shape, strict=True)]
    return F.pad(value, list(chain(*ends[::-1])))


def _unstack(stacked: Tensor, like: Tensor) -> Tensor:
    """Return an entry of stacked parameters in the shape of ``like``."""
    return transposed(stacked[tuple(map(slice, transposed(like).shape))])
