"""Per-example gradients with respect to the first layer's weights W1.

W1 are the matrices that read the features: ``lin.weight`` of GAT and GCN, ``lin_l`` and ``lin_r`` of GraphSAGE, the
first matrix of GIN's MLP and of any other layer or module. If there are no weights before the output layer (SGC), it
is the matrix of the output layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from ergnn.config.errors import InputError
from ergnn.engine.objective import FieldObjective, Objective, make_objective
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.layers import form_of, has_form

CHUNK = 64
"""Examples per joint receptive field."""

Values = Callable[[Tensor, Tensor], Tensor]
"""``(logits [n, outputs], targets [n]) → one value per example, [n]``."""


def first_layer_names(model: nn.Module, objective: Objective) -> list[str]:
    """Return the names of W1 in ``objective.parameters()``."""
    if not isinstance(model, Backbone):
        return _matrices(model, "")
    for i, conv in enumerate(model.convs):
        found = _matrices(conv, f"convs.{i}.", required=False)
        if found:
            return found
    if isinstance(objective, FieldObjective):
        return _matrices(model.heads[objective.heads[0]], "head.")
    inner = [name for name, value in model.named_parameters() if value.dim() == 2 and not name.startswith("heads.")]
    if inner:
        return inner[:1]
    return [name for head in objective.heads for name in _matrices(model.heads[head], f"heads.{head}.")]


def _matrices(layer: nn.Module, prefix: str, required: bool = True) -> list[str]:
    names = [prefix + name for name, value in layer.named_parameters() if value.dim() == 2]
    if required and not names:
        raise InputError(f"{type(layer).__name__} has no weight matrix, so there are no first-layer weights")
    read = form_of(layer).projections if has_form(layer) else None
    return names[:1] if read is None else [name for name in names if name.removeprefix(prefix) in read]


def gradients(model: nn.Module, examples: Examples, values: Values, chunk: int = CHUNK) -> Iterator[Tensor]:
    """Yield ``∇_{W1} value_i`` of every example, in evaluation mode."""
    if not len(examples):
        return
    for index in torch.arange(len(examples), device=examples.nodes.device).split(chunk):
        value, weights = _values(model, examples[index], values)
        for one in value:
            yield _gradient(one, weights)


def summed_gradient(model: nn.Module, examples: Examples, values: Values, chunk: int = CHUNK) -> Tensor:
    """Compute ``Σ_i ∇_{W1} value_i``, ``[size of W1]``."""
    parts = []
    for index in torch.arange(len(examples), device=examples.nodes.device).split(chunk):
        value, weights = _values(model, examples[index], values)
        parts.append(_gradient(value.sum(), weights))
    return torch.stack(parts).sum(0)


def first_layer_size(model: nn.Module, examples: Examples) -> int:
    """Return the number of entries of W1 that the examples' logits depend on."""
    objective = make_objective([model], [examples])
    params = objective.parameters()
    return sum(params[name].numel() for name in first_layer_names(model, objective))


def _values(model: nn.Module, examples: Examples, values: Values) -> tuple[Tensor, list[Tensor]]:
    objective = make_objective([model], [examples])
    params = objective.parameters()
    weights = [params[name].requires_grad_() for name in first_layer_names(model, objective)]
    with torch.enable_grad():
        return values(objective.logits(params), objective.targets), weights


def _gradient(value: Tensor, weights: list[Tensor]) -> Tensor:
    found = torch.autograd.grad(value, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
    return torch.cat([part.reshape(-1) for part in found]) if len(found) > 1 else found[0].reshape(-1)
