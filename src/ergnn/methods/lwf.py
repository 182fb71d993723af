"""Learning without forgetting (LwF): distill the outputs for earlier tasks on the new task's nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.data.stream import Task
from ergnn.engine.losses import MASKED
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView, Method
from ergnn.nn.examples import Examples, cross_entropy, pure_loss


@METHODS.register("lwf", help="distill the outputs of the model before the task (learning without forgetting)")
class LwF(Method):
    """Learning without forgetting (Li and Hoiem, 2017): no data of earlier tasks is stored.

    The loss is ``mean_v [CE(z_v, y_v) + α T² CE(softmax(z_v / T), softmax(z'_v / T))]`` over the task's training nodes
    v, where z are the outputs of the model and z' those of the model before the task. The second term uses the outputs
    for earlier tasks: the same head (shared), each earlier head (per-task), or the earlier classes (growing).

    Args:
        alpha: α, weight of the distillation term; 0 is finetuning.
        temperature: T, temperature of the softmax; the paper's experiments use 2.
    """

    comparison = Comparison(search={"alpha": (0.1, 1.0, 10.0), "temperature": (1.0, 2.0)})

    def __init__(self, alpha: float = 1.0, temperature: float = 2.0) -> None:
        check_at_least(0, alpha=alpha)
        check_at_least(1e-3, temperature=temperature)
        self.alpha, self.temperature = float(alpha), float(temperature)

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        own = learner.examples(task.graph, task.train, task.id)
        groups = self._earlier_outputs(learner, task) if self.alpha else {}
        if not groups:
            return own.weighted(1.0 / len(own))
        distilled = []
        for heads, (earlier, columns) in groups.items():
            old = learner.logits(task.graph, task.train, earlier)  # of the model before the task: no step was taken yet
            teacher = torch.full_like(old, MASKED)
            teacher[:, columns] = old[:, columns]
            scored_by = torch.tensor(heads, device=old.device).expand(len(own), -1)
            distilled.append(replace(own, heads=scored_by, targets=own.targets * 0, extras={"teacher": teacher}))
        width = max(part.extras["teacher"].size(1) for part in distilled)
        own = replace(own, extras={"teacher": torch.full((len(own), width), MASKED, device=own.nodes.device)})
        distilled = [replace(part, extras={"teacher": _widen(part.extras["teacher"], width)}) for part in distilled]
        return Examples.join([own, *distilled]).weighted(1.0 / len(own))

    @staticmethod
    def _earlier_outputs(learner: LearnerView, task: Task) -> dict[tuple[int, ...], tuple[int, list[int]]]:
        """Map heads to one task that they score and the outputs of all earlier tasks that they score."""
        groups: dict[tuple[int, ...], tuple[int, list[int]]] = {}
        for earlier in range(task.id):
            heads = tuple(learner.heads.heads_of(earlier, 1, learner.device)[0].tolist())
            columns = learner.heads.columns(earlier, learner.device)[0].tolist()
            groups[heads] = earlier, sorted({*groups.get(heads, (0, []))[1], *columns})
        return groups

    @pure_loss("alpha", "temperature")
    def loss(self, logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
        labels = cross_entropy(logits, targets, extras)
        if "teacher" not in extras:
            return labels
        teacher = _widen(extras["teacher"], logits.size(1)).to(logits.dtype)
        known, temperature = teacher != MASKED, self.temperature
        student = torch.where(known, logits, MASKED)
        terms = torch.softmax(teacher / temperature, dim=1) * torch.log_softmax(student / temperature, dim=1)
        return torch.where(known.any(1), -self.alpha * temperature**2 * terms.sum(1), labels)


def _widen(values: Tensor, width: int) -> Tensor:
    return F.pad(values, (0, width - values.size(1)), value=MASKED)
