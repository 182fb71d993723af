"""A ridge head on propagated features, solved in closed form: without training, and independent of task order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ergnn.analytic import AnalyticHead
from ergnn.config.errors import InputError
from ergnn.config.registry import inherit_options
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.methods import METHODS
from ergnn.methods.base import Comparison, LearnerView, Method, Scorer
from ergnn.nn.examples import Examples, cross_entropy


@METHODS.register("analytic", aliases=("ridge",), help="a closed-form ridge head on propagated features, no training")
class Analytic(AnalyticHead, Method):
    """Ridge regression on propagated features, from all labels seen so far.

    After each task, the head is solved from the ids and labels of all training nodes so far, in the graph of that task.
    The result equals the head solved from all labels at once, regardless of task order. λ and the feature map minimize
    the leave-one-out error on the training nodes; no validation labels are used. The learner's head determines which
    classes compete: those of the task, or all so far. The backbone is used only with a student.

    Args:
        student: train the learner's backbone from scratch at each task and predict with it. Its targets are the head's
            probabilities on all nodes of the graph and the labels of the task's training nodes. Requires
            ``head="growing"``. Forgotten nodes change the student only with the next task.
        options: of :class:`~ergnn.analytic.AnalyticHead`.
    """

    backbone = "gcn"
    comparison = Comparison(  # statistics need one map, so that all rows have the same width
        search={"lam": (0.1, 1.0, 10.0)}, variants={"statistics": {"memory": "statistics", "feature_map": "ppr"}}
    )

    @inherit_options(AnalyticHead)
    def __init__(self, student: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.trains_network = self.student = student
        self.reads_edge_weights = not student

    @property
    def unused_settings(self) -> tuple[str, ...]:
        return super().unused_settings + (("per_class",) if self.memory == "nodes" else ())

    def restarts(self, learner: LearnerView, task: Task) -> bool:
        return self.student

    def examples(self, learner: LearnerView, task: Task) -> Examples:
        if self.student:
            if learner.heads.kind != "growing":
                raise InputError(f"head is {learner.heads.kind!r}; a student learns all classes: use head='growing'")
            self.learn_task(task)
        return super().examples(learner, task)

    def rounds(self, learner: LearnerView, task: Task, examples: Examples) -> list[Examples]:
        """With a student, add all nodes of the graph, with the head's probabilities as targets."""
        if not self.student:
            return [examples]
        columns, classes = learner.heads.columns(None, examples.nodes.device)
        outputs = int(columns.max()) + 1
        nodes = torch.arange(task.graph.num_nodes, device=examples.nodes.device)
        soft = torch.zeros(nodes.numel(), outputs, device=nodes.device)
        soft[:, columns] = torch.softmax(self.head_scores(task.graph, nodes, classes), 1).to(soft.dtype)
        hard = torch.nn.functional.one_hot(examples.targets, outputs).to(soft.dtype)
        heads = learner.heads.heads_of(task.id, nodes.numel(), nodes.device)
        distilled = Examples(task.graph, nodes, heads, soft.argmax(1), nodes, {"soft": soft}, examples.loss)
        distilled = distilled.weighted(1.0 / nodes.numel())
        return [Examples.join([replace(examples, extras={"soft": hard}), distilled])]

    def loss(self, logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
        """Compute ``−Σ_c p_c log softmax(logits)_c`` for target probabilities p (Hinton et al., 2015)."""
        if "soft" not in extras:
            return cross_entropy(logits, targets, extras)
        soft = torch.nn.functional.pad(extras["soft"], (0, logits.size(1) - extras["soft"].size(1)))
        return -(soft * torch.log_softmax(logits, 1)).sum(1)

    def after_task(self, learner: LearnerView, task: Task, trained_on: Examples) -> dict[str, Any]:
        if not self.student:
            self.learn_task(task)
        return self.summary()

    def row_head(self) -> AnalyticHead:
        if self.memory != "nodes":
            raise InputError(f"memory is {self.memory!r}; in a folder it must be 'nodes'")
        if self.student:
            raise InputError("student is true; a folder does not train one")
        return self

    def scorer(self, learner: LearnerView, graph: Graph, task: int | None) -> Scorer:
        """Return the head's scores, or the student's outputs."""
        if self.student:
            return super().scorer(learner, graph, task)
        return partial(self.head_scores, graph, classes=learner.classes(task))
