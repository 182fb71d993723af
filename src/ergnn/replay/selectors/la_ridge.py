"""LA-ridge: ridge regression on the trained model, linearized in its first layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.config.registry import inherit_options
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import SelectionContext
from ergnn.replay.selectors.gradients import CHUNK, Values, first_layer_size, gradients
from ergnn.replay.selectors.ridge import Ridge


def margins(logits: Tensor, _: Tensor, columns: Tensor, c: int) -> Tensor:
    """Compute the margin of class ``c`` over the task's other classes, its log-odds ``z_c − log Σ_{j≠c} exp z_j``.

    For two classes this is the difference of their logits; for one class, its logit.
    """
    z = logits[:, columns]
    if columns.numel() == 1:
        return z[:, 0]
    rest = torch.arange(columns.numel(), device=z.device) != c
    return z[:, c] - torch.logsumexp(z[:, rest], dim=1)


@SELECTORS.register("la-ridge", help="nodes whose replay, linearized in the first layer, best predicts the labels")
class LinearizedRidge(Ridge):
    """The best set for ``k(u, v) = ⟨∂m_u/∂W1, ∂m_v/∂W1⟩``, m the margin, W1 the first layer's weights.

    To first order, training on the nodes S again changes the margins of all others by ``f_S``. Two classes share one
    margin (that of the second class); with more, each class has its own margin and kernel.

    Args:
        memory: MiB for the candidates' gradients; with less, the gradients of the others are computed repeatedly.
    """

    @inherit_options(Ridge)
    def __init__(self, *, memory: int = 1024, **options: Any) -> None:
        check_at_least(1, memory=memory)
        super().__init__(**options)
        self.memory = memory

    def kernel(self, context: SelectionContext, candidates: Tensor, others: Tensor) -> Tensor:
        columns = context.heads.columns(context.task.id, candidates.device)[0]
        size = first_layer_size(context.model, _examples(context, candidates[:1]))
        blocks = candidates.split(max(1, self.memory * 2**20 // (8 * size)))
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
    held = torch.stack(list(gradients(context.model, _examples(context, block), margin)))
    kept = held.any(0).nonzero().flatten()
    held = held[:, kept].double()
    products = []
    for part in (*blocks, others):
        if part is block:
            products.append(held @ held.T)
            continue
        streamed = (g[kept] for g in gradients(context.model, _examples(context, part), margin))
        while batch := list(islice(streamed, CHUNK)):
            products.append(held @ torch.stack(batch).double().T)
    return torch.cat(products, dim=1)


def _examples(context: SelectionContext, nodes: Tensor) -> Examples:
    heads = context.heads.heads_of(context.task.id, nodes.numel(), nodes.device)
    blank = torch.zeros_like(nodes)
    return Examples(context.graph, nodes, heads, blank, blank.float())
