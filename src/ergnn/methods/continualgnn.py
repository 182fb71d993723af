"""ContinualGNN: replay of important and random nodes, and a penalty on important parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ergnn.config.registry import inherit_options
from ergnn.data.stream import Task
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.losses import Objective
from ergnn.engine.step_hooks import StepHook
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, FolderUse, LearnerView
from ergnn.methods.ewc import EWC
from ergnn.methods.memory import MemoryMethod
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import SELECTORS, Selection


@METHODS.register("continualgnn", help="replay important and random nodes, with a penalty as in EWC (ContinualGNN)")
class ContinualGNN(MemoryMethod):
    """ContinualGNN (Wang et al., 2020): patterns are kept from the data and from the parameters.

    The loss is ``mean_{v∈D} ℓ_v + mean_{v∈B} ℓ_v + λ/2 Σ_k Σ_j F_kj (θ_j − θ*_kj)²`` for the task D, the buffer B, and
    the Fisher information F_k of the training nodes of each earlier task k (see :class:`~ergnn.methods.ewc.EWC`).

    The importance of a node is the share of its neighbors with a different class, ``I_v = mean_{u∈N(v)} [ŷ_u ≠ y_v]``:
    the network depends most on nodes near a class boundary. ŷ is the prediction of the network, as labels of
    neighbors are mostly unknown. Per class, half of the e nodes (rounded up) are sampled in proportion to importance,
    the others uniformly.

    Args:
        lam: λ, weight of the penalty; 0 is replay alone.
        fisher_samples: number of training nodes to sample per task to estimate F; by default all.
    """

    comparison = Comparison(search={"lam": (0.3, 3.0, 30.0)}, importance_option="fisher_samples")
    folder = FolderUse(extra_hops=1)

    @inherit_options(MemoryMethod)
    def __init__(self, *, lam: float = 3.0, fisher_samples: int | None = None, **memory: Any) -> None:
        super().__init__(**memory)
        self.ewc = EWC(lam, fisher_samples)
        self.selector = SELECTORS.create("random")  # a folder replaces forgotten nodes with it

    @property
    def nbytes(self) -> int:
        """The buffer, and the two statistics of the penalty per parameter."""
        return self.buffer.nbytes + self.ewc.nbytes

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        own, *remembered = self.parts(learner, task)
        count = len(self.buffer)
        return Examples.join([own.weighted(1.0 / len(own)), *(part.weighted(1.0 / count) for part in remembered)])

    def step_hook(self, learner: LearnerView, task: Task, objective: Objective) -> StepHook | None:
        return self.ewc.step_hook(learner, task, objective)

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        own = trained_on[torch.arange(task.train.numel(), device=task.train.device)]
        own = replace(own, graph=task.graph)  # replayed nodes are not connected to it
        return {**super().after_task(learner, task, trained_on), **self.ewc.after_task(learner, task, own)}

    def select(self, learner: LearnerView, task: Task, trained_on: Examples) -> Selection:
        generator = learner.selection_context(task, trained_on, self.per_class, False).generator()
        importance, labels = self.importance(learner, task).cpu().double(), task.graph.y[task.train].cpu()
        chosen = []
        for c in task.classes:
            members = (labels == c).nonzero().flatten()
            members = members[torch.randperm(members.numel(), generator=generator)]
            count = min(self.per_class, members.numel())
            first = (count + 1) // 2  # tiny weights keep nodes of importance 0 available where others are too few
            picked = torch.multinomial(importance[members] + 1e-9, first, generator=generator)
            left = torch.ones(members.numel(), dtype=torch.bool)
            left[picked] = False
            chosen.append(torch.cat([members[picked], members[left][: count - first]]))
        index = torch.cat(chosen)
        return Selection(task.train[index.to(task.train.device)], importance[index].float())

    def importance(self, learner: LearnerView, task: Task) -> Tensor:
        """Return ``I_v`` of the task's training nodes; 0 for a node without neighbors."""
        adj = adjacency_of(task.graph).without_loops()
        row, source = adj.incoming(task.train)
        unique, place = source.unique(return_inverse=True)
        columns, classes = learner.heads.columns(None if learner.heads.kind == "growing" else task.id, learner.device)
        differs = torch.zeros(0, device=row.device)
        if unique.numel():
            predicted = classes[learner.logits(task.graph, unique, task.id)[:, columns].argmax(1)]
            differs = (predicted[place] != task.graph.y[task.train][row]).float()
        total = torch.zeros(task.train.numel(), device=row.device).index_add_(0, row, differs)
        return total / adj.degrees(task.train).clamp(min=1)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "ewc": self.ewc.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.ewc.load_state_dict(state["ewc"])
