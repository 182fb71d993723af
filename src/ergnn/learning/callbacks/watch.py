"""Drift, calibration and unknown classes of a stream of tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.learning.callbacks.base import Callback
from ergnn.learning.watch.calibration import calibration
from ergnn.learning.watch.drift import ALPHA, SAMPLES, drift_test, node_aspects, stack_aspects
from ergnn.learning.watch.unknown import RATE, UnknownScore, unknown_rows
from ergnn.methods.base import LearnerView


class Watch(Callback):
    """Watches the test nodes of each task, of which only calibration uses the labels.

    Attributes:
        results: one dict per task, each value of which is None where there are no such nodes. ``drift`` compares the
            task's test nodes with those of all earlier tasks, in the graph and with the model after the task (see
            :func:`ergnn.learning.watch.drift_test`). ``unknown`` counts its test nodes that are of no class of
            earlier tasks, with a threshold by their validation nodes (see
            :class:`ergnn.learning.watch.UnknownScore`).
            ``calibration`` is that of all tasks so far, with a growing head.

    Args:
        alpha: the share of false alarms of drift, per task.
        rate: the share of nodes of known classes that are called unknown.
        samples: nodes per side that are compared at most.
        permutations: see :func:`ergnn.learning.watch.drift_test`.
        seed: of samples and permutations.
    """

    def __init__(
        self,
        *,
        alpha: float = ALPHA,
        rate: float = RATE,
        samples: int = SAMPLES,
        permutations: int = 999,
        seed: int = 0,
    ) -> None:
        self.alpha, self.rate, self.samples, self.permutations, self.seed = alpha, rate, samples, permutations, seed
        self.results: list[dict[str, Any]] = []
        self._tasks: list[Task] = []

    def on_task_end(self, learner: LearnerView, task: Task, record: dict[str, Any]) -> None:
        result = {
            "task": task.id,
            "drift": self._drift(learner, task),
            "unknown": self._unknown(task),
            "calibration": self._calibration(learner, task),
        }
        self._tasks.append(task)
        self.results.append(result)

    def _parts(self, task: Task, split: str, tasks: list[Task]) -> list[tuple[Graph, Tensor]]:
        """The graph and the nodes of each task's split; the present graph, unless a task has its own."""
        return [(each.graph if each.own_graph else task.graph, getattr(each, split).cpu()) for each in tasks]

    def _sampled(self, parts: list[tuple[Graph, Tensor]], seed: int) -> list[tuple[Graph, Tensor]]:
        """Up to ``samples`` nodes of all parts together."""
        total = sum(nodes.numel() for _, nodes in parts)
        chosen = np.sort(np.random.default_rng([self.seed, seed]).permutation(total)[: self.samples])
        out, start = [], 0
        for graph, nodes in parts:
            mine = chosen[(chosen >= start) & (chosen < start + nodes.numel())] - start
            out.append((graph, nodes[torch.from_numpy(mine)]))
            start += nodes.numel()
        return [part for part in out if part[1].numel()]

    def _drift(self, learner: LearnerView, task: Task) -> dict[str, Any] | None:
        sides = []
        for number, tasks in enumerate((self._tasks, [task])):
            parts = self._sampled(self._parts(task, "test", tasks), 2 * task.id + number)
            if not parts:
                return None
            aspects = [self._aspects(learner, *part) for part in parts]
            sides.append(stack_aspects(aspects))
        found = drift_test(*sides, alpha=self.alpha, permutations=self.permutations, seed=self.seed)
        return found.to_dict()

    def _aspects(self, learner: LearnerView, graph: Graph, nodes: Tensor) -> dict[str, Any]:
        aspects = node_aspects(graph, nodes.numpy())
        if learner.heads.kind == "growing":
            aspects["predictions"] = learner.predict_proba(nodes, graph=graph).cpu().numpy()
        return aspects

    def _unknown(self, task: Task) -> dict[str, Any] | None:
        new = self._sampled(self._parts(task, "test", [task]), 2 * task.id + 1)
        if not self._tasks or not new:
            return None
        train, val = (self._parts(task, split, self._tasks) for split in ("train", "val"))
        labels = torch.cat([graph.y.cpu()[nodes] for graph, nodes in train])
        rows = [torch.cat([unknown_rows(*part).cpu() for part in parts]) for parts in (train, val, new)]
        score = UnknownScore.fit(rows[0], labels, torch.cat(rows)).with_threshold(rows[1], self.rate)
        return score.count(rows[2])

    def _calibration(self, learner: LearnerView, task: Task) -> dict[str, Any] | None:
        if learner.heads.kind != "growing":
            return None
        sides = []
        for split in ("val", "test"):
            parts = [part for part in self._parts(task, split, [*self._tasks, task]) if part[1].numel()]
            if not parts:
                return None
            classes = learner.classes().cpu()
            labels = torch.cat([graph.y.cpu()[nodes] for graph, nodes in parts])
            found = torch.cat([learner.predict_proba(nodes, graph=graph).cpu() for graph, nodes in parts])
            columns = (labels[:, None] == classes).int().argmax(1)
            sides.append((found.numpy(), columns.numpy()))
        return calibration(*sides)
