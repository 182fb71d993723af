"""Methods that distill outputs of earlier models: LwF, DER++ and iCaRL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.config.registry import inherit_options
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.losses import MASKED
from ergnn.engine.outputs import embed
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, FolderUse, LearnerView, Method, Scorer
from ergnn.methods.memory import STORES_VALUES, MemoryMethod, SelectorMethod
from ergnn.nn.examples import Examples, cross_entropy, pure_loss


def join_with_outputs(parts: list[Examples], outputs: list[Tensor]) -> Examples:
    """Join examples with outputs to learn, ``[n, outputs]`` per part; :data:`MASKED` where there is none."""
    width = max(values.size(1) for values in outputs)
    extras = [{"outputs": _widen(values, width)} for values in outputs]
    return Examples.join([replace(examples, extras=extra) for examples, extra in zip(parts, extras, strict=True)])


def outputs_to_learn(logits: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
    """Return the outputs to learn, as wide as the logits: learners trained side by side share the widest head."""
    return _widen(extras["outputs"], logits.size(1)).to(logits.dtype)


def _widen(values: Tensor, width: int) -> Tensor:
    return F.pad(values, (0, width - values.size(1)), value=MASKED)


def _masked(examples: Examples, width: int = 1) -> Tensor:
    return torch.full((len(examples), width), MASKED, device=examples.nodes.device)


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
        if not self.alpha or not task.id:
            return own.weighted(1.0 / len(own))
        parts, outputs, heads, device = [own], [_masked(own)], learner.heads, learner.device
        for _, tasks in groupby(range(task.id), lambda earlier: heads.heads_of(earlier, 1, device).tolist()):
            scored = list(tasks)  # by the same heads
            columns = torch.cat([heads.columns(earlier, device)[0] for earlier in scored])
            old = learner.logits(
                task.graph, task.train, scored[0]
            )  # of the model before the task: no step was taken yet
            outputs.append(torch.full_like(old, MASKED))
            outputs[-1][:, columns] = old[:, columns]
            of_heads = heads.heads_of(scored[0], len(own), device)
            parts.append(replace(own, heads=of_heads, targets=own.targets * 0))
        return join_with_outputs(parts, outputs).weighted(1.0 / len(own))

    @pure_loss("alpha", "temperature")
    def loss(self, logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
        labels = cross_entropy(logits, targets, extras)
        if "outputs" not in extras:
            return labels
        teacher = outputs_to_learn(logits, extras)
        known, temperature = teacher != MASKED, self.temperature
        student = torch.where(known, logits, MASKED)
        terms = torch.softmax(teacher / temperature, dim=1) * torch.log_softmax(student / temperature, dim=1)
        return torch.where(known.any(1), -self.alpha * temperature**2 * terms.sum(1), labels)


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
        new, *old = self.parts(learner, task)
        if not old or self.alpha == self.beta == 0:
            return new
        outputs = [_masked(new)]
        for examples, experience in zip(old, self.buffer.experiences, strict=True):
            values = experience.extras["logits"]  # later tasks only append outputs
            columns = learner.heads.scored(experience.task, learner.device)[0][: values.size(1)]
            outputs.append(_masked(examples, int(columns.max()) + 1).index_copy(1, columns, values))
        return join_with_outputs([new, *old], outputs)

    @pure_loss("alpha", "beta")
    def loss(self, logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
        labels = cross_entropy(logits, targets, extras)
        if "outputs" not in extras:
            return labels
        stored = outputs_to_learn(logits, extras)
        known = stored != MASKED
        remembered = known.any(1)
        distance = torch.where(known, logits - stored, 0.0).square().sum(1) / known.sum(1).clamp(min=1)
        return torch.where(remembered, self.alpha * distance + self.beta * labels, labels)

    def to_store(self, learner: LearnerView, task: Task, nodes: Tensor) -> tuple[Graph, dict[str, Tensor]]:
        logits = learner.logits(task.graph, nodes, task.id)
        return task.graph, {"logits": logits[:, learner.heads.scored(task.id, learner.device)[0]]}


@METHODS.register("icarl", help="herded exemplars, distillation, and the nearest mean of exemplars (iCaRL)")
class ICaRL(SelectorMethod):
    """iCaRL (Rebuffi et al., 2017) with e exemplars per class; ``budget_nodes`` is the paper's K, the total.

    The loss is the mean over the task's training nodes and all exemplars of ``Σ_y BCE(σ(z_y), q_y)``, where q is the
    label for outputs of the task's classes, and ``σ(z'_y)`` of the model before the task for those of earlier classes.
    (With a shared or per-task head, a node has the outputs of its own task only.)

    A node is predicted as the class whose exemplars have the nearest mean, ``argmin_c ‖φ_v − μ_c‖``, with embeddings φ
    of the current model divided by their norm, and μ_c divided by its norm. The outputs serve training only.
    """

    folder = FolderUse(refused="its predictions are not the outputs of a network")

    @inherit_options(MemoryMethod)
    def __init__(self, **memory: Any) -> None:
        super().__init__(selector="herding", selector_options={"normalize": True}, **memory)

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        parts, heads, device = self.parts(learner, task), learner.heads, learner.device
        tasks = [task.id, *(experience.task for experience in self.buffer.experiences)]
        grows = heads.kind == "growing"
        labeled, outputs = heads.columns(task.id, device)[0], []
        for part, of in zip(parts, tasks, strict=True):
            columns = heads.scored(of, device)[0]
            soft = _masked(part, int(columns.max()) + 1)
            soft[:, columns] = learner.logits(part.graph, part.nodes, of)[:, columns].sigmoid().to(soft.dtype)
            if grows or part is parts[0]:
                soft[:, labeled] = (part.targets.unsqueeze(1) == labeled).to(soft.dtype)
            outputs.append(soft)
        joined = join_with_outputs(parts, outputs)
        return joined.weighted(1.0 / len(joined))

    @pure_loss()
    def loss(self, logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
        if "outputs" in extras:
            soft = outputs_to_learn(logits, extras)
        else:
            soft = (targets.unsqueeze(1) == torch.arange(logits.size(1), device=targets.device)).to(logits.dtype)
        terms = F.binary_cross_entropy_with_logits(logits, soft.clamp(min=0.0), reduction="none")
        return torch.where(soft == MASKED, 0.0, terms).sum(1)

    def scorer(self, learner: LearnerView, graph: Graph, task: int | None) -> Scorer:
        return partial(self.distances, learner, graph, task)

    def distances(self, learner: LearnerView, graph: Graph, task: int | None, nodes: Tensor) -> Tensor:
        """Return ``−‖φ_v − μ_c‖²`` of each class, and a low score for a class without exemplars."""
        assert learner.model is not None
        heads, grows = learner.heads, learner.heads.kind == "growing"
        embedded = F.normalize(embed(learner.model, graph, nodes), dim=1)
        outputs = heads.scored(task, nodes.device)[0]
        scores = torch.full((nodes.numel(), int(outputs.max()) + 1), MASKED, dtype=embedded.dtype, device=nodes.device)
        used = [experience for experience in self.buffer.experiences if grows or experience.task == task]
        if used:
            exemplar_graph, exemplars = replace(self.buffer, experiences=used).alone(graph)
            phi = F.normalize(embed(learner.model, exemplar_graph, exemplars), dim=1)
            targets = torch.cat([heads.targets(experience.task, experience.labels) for experience in used])
            for output in targets.unique():
                mean = F.normalize(phi[targets == output].mean(0), dim=0)
                scores[:, output] = -(embedded - mean).square().sum(1)
        return scores[:, heads.columns(task, nodes.device)[0]]
