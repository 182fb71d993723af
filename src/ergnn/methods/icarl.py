"""iCaRL: exemplars by herding, distillation, and the nearest mean of exemplars."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.registry import inherit_options
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.losses import MASKED
from ergnn.engine.outputs import embed
from ergnn.methods import METHODS
from ergnn.methods.base import FolderUse, LearnerView, Scorer
from ergnn.methods.memory import MemoryMethod, SelectorMethod
from ergnn.nn.examples import Examples, pure_loss

ABSENT = -1.0
"""Target of an output that is not part of an example's loss."""


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
        columns = [heads.columns(None if grows else of, device)[0] for of in tasks]
        width = max(int(every.max()) for every in columns) + 1
        labeled = heads.columns(task.id, device)[0]
        for i, (part, of, every) in enumerate(zip(parts, tasks, columns, strict=True)):
            soft = torch.full((len(part), width), ABSENT, device=device)
            soft[:, every] = learner.logits(part.graph, part.nodes, of)[:, every].sigmoid().to(soft.dtype)
            if grows or i == 0:
                soft[:, labeled] = (part.targets.unsqueeze(1) == labeled).to(soft.dtype)
            parts[i] = replace(part, extras={"soft": soft})
        joined = Examples.join(parts)
        return joined.weighted(1.0 / len(joined))

    @pure_loss()
    def loss(self, logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
        if "soft" in extras:
            soft = F.pad(extras["soft"], (0, logits.size(1) - extras["soft"].size(1)), value=ABSENT).to(logits.dtype)
        else:
            soft = (targets.unsqueeze(1) == torch.arange(logits.size(1), device=targets.device)).to(logits.dtype)
        terms = F.binary_cross_entropy_with_logits(logits, soft.clamp(min=0.0), reduction="none")
        return torch.where(soft == ABSENT, 0.0, terms).sum(1)

    def scorer(self, learner: LearnerView, graph: Graph, task: int | None) -> Scorer:
        return partial(self.distances, learner, graph, task)

    def distances(self, learner: LearnerView, graph: Graph, task: int | None, nodes: Tensor) -> Tensor:
        """Return ``−‖φ_v − μ_c‖²`` of each class, and a low score for a class without exemplars."""
        assert learner.model is not None
        heads, grows = learner.heads, learner.heads.kind == "growing"
        embedded = F.normalize(embed(learner.model, graph, nodes), dim=1)
        outputs = heads.columns(None if grows else task, nodes.device)[0]
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
