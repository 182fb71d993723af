"""Dark experience replay (DER++): the memory stores the labels of nodes and their earlier outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.config.registry import inherit_options
from ergnn.data.stream import Task
from ergnn.engine.losses import MASKED
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView
from ergnn.methods.memory import STORES_VALUES, SelectorMethod
from ergnn.nn.examples import Examples, cross_entropy, pure_loss


@METHODS.register("derpp", aliases=("der++",), help="replay nodes with their labels and earlier outputs (DER++)")
class DERpp(SelectorMethod):
    """Dark experience replay with labels (Buzzega et al., 2020).

    The loss is ``mean_{v∈D} CE(z_v, y_v) + mean_{v∈B} [α ‖z_v − z'_v‖² / k + β CE(z_v, y_v)]`` for the task D and the
    buffer B, where z' are the k outputs of v right after its task was learned, without dropout.

    Args:
        alpha: α, weight of the loss on stored outputs.
        beta: β, weight of the loss on stored labels.
    """

    comparison = Comparison(search={"alpha": (0.1, 0.5, 1.0), "beta": (0.5, 1.0)})
    folder = STORES_VALUES

    @inherit_options(SelectorMethod)
    def __init__(self, *, alpha: float = 0.5, beta: float = 0.5, **memory: Any) -> None:
        check_at_least(0, alpha=alpha, beta=beta)
        super().__init__(**memory)
        self.alpha, self.beta = float(alpha), float(beta)

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        own, *remembered = self.parts(learner, task)
        own = own.weighted(1.0 / len(own))
        if not remembered or self.alpha == self.beta == 0:
            return own
        stored = [experience.extras["logits"] for experience in self.buffer.experiences]
        columns = [self._columns(learner, experience.task) for experience in self.buffer.experiences]
        columns = [outputs[: values.size(1)] for outputs, values in zip(columns, stored, strict=True)]
        masked = torch.full((1, max(int(outputs.max()) + 1 for outputs in columns)), MASKED, device=own.nodes.device)
        parts = [replace(own, extras={"logits": masked.repeat(len(own), 1)})]
        for part, outputs, values in zip(remembered, columns, stored, strict=True):
            old = masked.repeat(len(part), 1).index_copy(1, outputs, values)
            parts.append(replace(part.weighted(1.0 / len(self.buffer)), extras={"logits": old}))
        return Examples.join(parts)

    @staticmethod
    def _columns(learner: LearnerView, task: int) -> Tensor:
        """Return the outputs whose values are stored; later tasks only append to them."""
        return learner.heads.columns(None if learner.heads.kind == "growing" else task, learner.device)[0]

    @pure_loss("alpha", "beta")
    def loss(self, logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
        labels = cross_entropy(logits, targets, extras)
        if "logits" not in extras:
            return labels
        stored = F.pad(extras["logits"], (0, logits.size(1) - extras["logits"].size(1)), value=MASKED)
        known = stored != MASKED
        remembered = known.any(1)
        distance = torch.where(known, logits - stored, 0.0).square().sum(1) / known.sum(1).clamp(min=1)
        return torch.where(remembered, self.alpha * distance + self.beta * labels, labels)

    def values_to_store(self, learner: LearnerView, task: Task, nodes: Tensor) -> dict[str, Tensor]:
        return {"logits": learner.logits(task.graph, nodes, task.id)[:, self._columns(learner, task.id)]}
