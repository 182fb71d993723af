"""Gradients of single examples, of all parameters or of the first layer's weights W1, and selectors that use them.

W1 are the matrices that read the features: ``lin.weight`` of GAT and GCN, ``lin_l`` and ``lin_r`` of GraphSAGE, the
first matrix of GIN's MLP and of any other layer or module. If there are no weights before the output layer (SGC), it
is the matrix of the output layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from ergnn.config.errors import InputError, check_choice
from ergnn.engine.objective import FieldObjective, Objective, ParamDict, make_objective
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.layers import form_of, has_form
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import SelectionContext, Selector
from ergnn.replay.selectors.ridge import Ridge

FIELD_EXAMPLES = 64
"""Examples per joint receptive field."""
BLOCK_BYTES = 2**30
"""Maximum size of the gradients of a block of candidates; with more blocks, gradients are computed repeatedly."""

KnownTarget = Literal["val", "train"]
Values = Callable[[Objective, ParamDict], Tensor]
"""``(objective, parameters) → one value per example, [n]``."""


def first_layer_names(model: nn.Module, objective: Objective) -> list[str]:
    """Return the names of W1 in ``objective.parameters()``."""
    layers: list[dict[str, nn.Module]] = [{"": model}]
    if isinstance(model, Backbone):
        stacked = isinstance(objective, FieldObjective)
        heads = {"head." if stacked else f"heads.{head}.": model.heads[head] for head in objective.heads}
        layers = [*({f"convs.{i}.": conv} for i, conv in enumerate(model.convs)), heads]
    for group in layers:
        if names := [name for prefix, layer in group.items() for name in _matrices(layer, prefix)]:
            return names
    raise InputError(f"{type(model).__name__} has no weight matrix, so there are no first-layer weights")


def _matrices(layer: nn.Module, prefix: str) -> list[str]:
    names = [prefix + name for name, value in layer.named_parameters() if value.dim() == 2]
    read = form_of(layer).projections if has_form(layer) else None
    return names[:1] if read is None else [name for name in names if name.removeprefix(prefix) in read]


def gradients(model: nn.Module, examples: Examples, values: Values) -> Iterator[Tensor]:
    """Yield ``∇_{W1} value_i``, one row per example of a chunk, in evaluation mode."""
    for of_examples, weights in _values(model, examples, values):
        yield torch.stack([_gradient(value, weights) for value in of_examples])


def _values(
    model: nn.Module, examples: Examples, values: Values, all_params: bool = False
) -> Iterator[tuple[Tensor, list[Tensor]]]:
    """Yield the values of a chunk of examples, and W1 (or all parameters)."""
    for start in range(0, len(examples), FIELD_EXAMPLES):
        objective = make_objective([model], [examples[slice(start, start + FIELD_EXAMPLES)]])
        params = objective.parameters()
        names = list(params) if all_params else first_layer_names(model, objective)
        weights = [params[name].requires_grad_() for name in names]
        with torch.enable_grad():
            of_examples = values(objective, params)
        yield of_examples, weights


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

    def __init__(self, target: KnownTarget = "val") -> None:
        check_choice("target", target, KnownTarget)
        self.target = target

    def score(self, context: SelectionContext) -> Tensor:
        chunks = _values(context.model, context.examples(self.target), Objective.losses)
        goal = torch.stack([_gradient(losses.sum(), weights) for losses, weights in chunks]).sum(0)
        tiny = torch.finfo(goal.dtype).tiny
        goal = goal / goal.norm().clamp(min=tiny)
        candidates = gradients(context.model, context.examples("train"), Objective.losses)
        return torch.stack([(g / g.norm().clamp(min=tiny)) @ goal for chunk in candidates for g in chunk])


@SELECTORS.register("gradient-norm", help="largest norm of the gradient of the node's loss (GraNd)")
class GradientNorm(Selector):
    """Nodes with the largest ``‖∇_θ ℓ_v‖`` after training, over all parameters (GraNd, Paul et al., 2021)."""

    def score(self, context: SelectionContext) -> Tensor:
        norms = []
        for losses, params in _values(context.model, context.examples("train"), Objective.losses, all_params=True):
            for loss in losses:
                grads = torch.autograd.grad(loss, params, retain_graph=True, allow_unused=True)
                norms.append(torch.stack([grad.double().square().sum() for grad in grads if grad is not None]).sum())
        return torch.stack(norms).sqrt()


def margins(objective: Objective, params: ParamDict, columns: Tensor, c: int) -> Tensor:
    """Compute the margin of class ``c`` over the task's other classes, its log-odds ``z_c − log Σ_{j≠c} exp z_j``.

    For two classes this is the difference of their logits; for one class, its logit.
    """
    z = objective.logits(params)[:, columns]
    if columns.numel() == 1:
        return z[:, 0]
    rest = torch.arange(columns.numel(), device=z.device) != c
    return z[:, c] - torch.logsumexp(z[:, rest], dim=1)


@SELECTORS.register("la-ridge", help="nodes whose replay, linearized in the first layer, best predicts the labels")
class LinearizedRidge(Ridge):
    """The best set for ``k(u, v) = ⟨∂m_u/∂W1, ∂m_v/∂W1⟩``, m the margin, W1 the first layer's weights.

    To first order, training on the nodes S again changes the margins of all others by ``f_S``. Two classes share one
    margin (that of the second class); with more, each class has its own margin and kernel.
    """

    def kernel(self, context: SelectionContext, candidates: Tensor, others: Tensor) -> Tensor:
        columns = context.heads.columns(context.task.id, candidates.device)[0]
        (first,) = gradients(context.model, context.as_examples(candidates[:1]), Objective.losses)
        blocks = candidates.split(max(1, BLOCK_BYTES // (8 * first.numel())))
        functions = range(columns.numel()) if columns.numel() > 2 else [columns.numel() - 1]
        kernels = []
        for c in functions:
            margin = partial(margins, columns=columns, c=c)
            kernels.append(torch.cat([_products(context, margin, block, blocks, others) for block in blocks]))
        return torch.stack(kernels)


def _products(
    context: SelectionContext, margin: Values, block: Tensor, blocks: Sequence[Tensor], others: Tensor
) -> Tensor:
    """Compute the kernel of one block of candidates with all candidates and the others.

    Gradients are zero for features that no candidate's neighborhood has: only nonzero entries are kept.
    """
    of_block = torch.cat(list(gradients(context.model, context.as_examples(block), margin)))
    nonzero = of_block.any(0).nonzero().flatten()
    of_block = of_block[:, nonzero].double()
    products = []
    for nodes in (*blocks, others):
        if nodes is block:
            products.append(of_block @ of_block.T)
            continue
        for chunk in gradients(context.model, context.as_examples(nodes), margin):
            products.append(of_block @ chunk[:, nonzero].double().T)
    return torch.cat(products, dim=1)
