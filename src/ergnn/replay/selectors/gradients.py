"""Gradients of single examples, of all parameters or of the first layer's weights W1, and selectors that use them.

W1 are the matrices that read the features: ``lin.weight`` of GAT and GCN, ``lin_l`` and ``lin_r`` of GraphSAGE, the
first matrix of GIN's MLP and of any other layer or module. If there are no weights before the output layer (SGC), it
is the matrix of the output layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ergnn.config.errors import InputError, check_choice
from ergnn.engine.objective import FieldObjective, Objective, make_objective
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.layers import form_of, has_form
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import SelectionContext, Selector

CHUNK = 64
"""Examples per joint receptive field."""

Target = Literal["val", "train"]
Values = Callable[[Tensor, Tensor], Tensor]
"""``(logits [n, outputs], targets [n]) → one value per example, [n]``."""


def first_layer_names(model: nn.Module, objective: Objective) -> list[str]:
    """Return the names of W1 in ``objective.parameters()``."""
    if not isinstance(model, Backbone):
        return _matrices(model, "")
    for i, conv in enumerate(model.convs):
        if names := _matrices(conv, f"convs.{i}.", required=False):
            return names
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


def gradients(model: nn.Module, examples: Examples, values: Values) -> Iterator[Tensor]:
    """Yield ``∇_{W1} value_i`` of every example, in evaluation mode."""
    for chunk in _chunks(examples):
        of_examples, weights = _values(model, chunk, values)
        for value in of_examples:
            yield _gradient(value, weights)


def summed_gradient(model: nn.Module, examples: Examples, values: Values) -> Tensor:
    """Compute ``Σ_i ∇_{W1} value_i``, ``[size of W1]``."""
    sums = []
    for chunk in _chunks(examples):
        of_examples, weights = _values(model, chunk, values)
        sums.append(_gradient(of_examples.sum(), weights))
    return torch.stack(sums).sum(0)


def first_layer_size(model: nn.Module, examples: Examples) -> int:
    """Return the number of entries of W1 that the examples' logits depend on."""
    objective = make_objective([model], [examples])
    params = objective.parameters()
    return sum(params[name].numel() for name in first_layer_names(model, objective))


def _chunks(examples: Examples) -> list[Examples]:
    indices = torch.arange(len(examples), device=examples.nodes.device).split(CHUNK) if len(examples) else ()
    return [examples[index] for index in indices]


def _values(model: nn.Module, examples: Examples, values: Values) -> tuple[Tensor, list[Tensor]]:
    objective = make_objective([model], [examples])
    params = objective.parameters()
    weights = [params[name].requires_grad_() for name in first_layer_names(model, objective)]
    with torch.enable_grad():
        return values(objective.logits(params), objective.targets), weights


def _gradient(value: Tensor, weights: list[Tensor]) -> Tensor:
    grads = torch.autograd.grad(value, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
    return torch.cat([grad.reshape(-1) for grad in grads]) if len(grads) > 1 else grads[0].reshape(-1)


@SELECTORS.register("rim", help="first-layer gradient best aligned with that of a target set (repaired influence)")
class RepairedInfluence(Selector):
    """Ranks training nodes by ``cos(∇_{W1} ℓ_v, Σ_{t∈T} ∇_{W1} ℓ_t)``, W1 the first layer's weights.

    Plain influence scales with a node's residual and gradient norm, so that confident, typical nodes score about 0 and
    outliers rank first. Without the norm, and in the first layer only, no Hessian is needed. A positive score is
    helpful: a gradient step on v's loss lowers the target's loss.

    Args:
        target: ``val`` or ``train``.
    """

    def __init__(self, target: Target = "val") -> None:
        check_choice("target", target, Target)
        self.target = target

    def score(self, context: SelectionContext) -> Tensor:
        goal = summed_gradient(context.model, context.examples(self.target), _losses)
        tiny = torch.finfo(goal.dtype).tiny
        goal = goal / goal.norm().clamp(min=tiny)
        candidates = gradients(context.model, context.examples("train"), _losses)
        return torch.stack([(g / g.norm().clamp(min=tiny)) @ goal for g in candidates])


def _losses(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits, targets, reduction="none")


@SELECTORS.register("gradient-norm", help="largest norm of the gradient of the node's loss (GraNd)")
class GradientNorm(Selector):
    """Nodes with the largest ``‖∇_θ ℓ_v‖`` after training, over all parameters (GraNd, Paul et al., 2021)."""

    def score(self, context: SelectionContext) -> Tensor:
        norms = []
        for chunk in _chunks(context.examples("train")):
            objective = make_objective([context.model], [chunk])
            params = {name: value.requires_grad_() for name, value in objective.parameters().items()}
            with torch.enable_grad():
                losses = objective.losses(params)
            for loss in losses:
                grads = torch.autograd.grad(loss, list(params.values()), retain_graph=True, allow_unused=True)
                norms.append(torch.stack([grad.double().square().sum() for grad in grads if grad is not None]).sum())
        return torch.stack(norms).sqrt()
