"""Assignment of classes to outputs.

``shared``
    One output layer for all tasks; the output of a class is its index within its task. (The task must be known at test
    time.)
``per-task``
    One output layer per task. (The task must be known at test time.)
``growing``
    One output layer for the new classes of each task, with one softmax over all layers: all classes so far compete, and
    the task may be unknown at test time. If a task contains earlier classes, they keep their outputs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ergnn.config.errors import InputError, check_choice
from ergnn.config.learner_config import HEADS
from ergnn.data.graph import Graph
from ergnn.nn.examples import Examples, LossFunction


class HeadPolicy:
    """Assign the classes of each task to outputs; ``kind`` is ``shared``, ``per-task`` or ``growing``."""

    def __init__(self, kind: str) -> None:
        check_choice("head", kind, HEADS)
        self.kind = kind
        self.classes: list[tuple[int, ...]] = []

    def add_task(self, model: Any, classes: tuple[int, ...]) -> int:
        """Add outputs for the classes of a task to a model (or None), and return the number of the task."""
        seen = set().union(*self.classes) if self.kind == "growing" else set[int]()
        new = [c for c in classes if c not in seen]
        if self.kind == "shared" and self.classes:
            if len(classes) > len(self.classes[0]):
                raise InputError(
                    f"a task with {len(classes)} classes does not fit the shared head of {len(self.classes[0])} "
                    "outputs, the number of classes of the first task; put the task with the most classes first, or "
                    "use head='per-task'"
                )
        elif new and model is not None:
            model.add_head(len(new))
        self.classes.append(tuple(classes))
        return len(self.classes) - 1

    def heads_of(self, task: int, count: int, device: torch.device) -> Tensor:
        """Return the heads that score examples of a task, ``[count, r]``."""
        if self.kind == "growing":
            return torch.arange(_growing_head(tuple(self.classes))[0], device=device).expand(count, -1)
        return torch.full((count, 1), 0 if self.kind == "shared" else task, dtype=torch.long, device=device)

    def targets(self, task: int, labels: Tensor) -> Tensor:
        """Return the output of each label; labels are classes of the task."""
        outputs, classes = self.columns(task, labels.device)
        hit = labels.unsqueeze(1) == classes
        if not bool(hit.any(1).all()):
            wrong = int(labels[~hit.any(1)][0])
            raise InputError(f"label {wrong} is not one of task {task + 1}'s classes {self.classes[task]}")
        return outputs[hit.int().argmax(1)]

    def examples(self, graph: Graph, nodes: Tensor, task: int, loss: LossFunction) -> Examples:
        """Return nodes of a task as examples of weight 1."""
        heads, targets = self.heads_of(task, nodes.numel(), nodes.device), self.targets(task, graph.y[nodes])
        return Examples(graph, nodes, heads, targets, torch.ones(nodes.numel(), device=nodes.device), {}, loss)

    def columns(self, task: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the outputs that compete and their classes, for one task or, with a growing head, for all tasks."""
        if self.kind == "growing":
            outputs = _growing_head(tuple(self.classes))[1]
            pairs = [(outputs[c], c) for c in (outputs if task is None else self.classes[task])]
        elif task is not None:
            pairs = list(enumerate(self.classes[task]))
        else:
            raise InputError(
                f"head {self.kind!r} needs the task of the nodes: pass its number, from task=0 to "
                f"task={len(self.classes) - 1}; use head='growing' if it is unknown"
            )
        columns, labels = torch.tensor(pairs, device=device).T
        return columns, labels

    def scored(self, task: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the outputs that score nodes of a task, with a growing head those of all tasks, and their classes."""
        return self.columns(None if self.kind == "growing" else task, device)


@lru_cache(maxsize=64)  # needed for every experience
def _growing_head(tasks: tuple[tuple[int, ...], ...]) -> tuple[int, dict[int, int]]:
    """Return the number of layers of a growing head, and the output of each class (padded to the largest width)."""
    seen: set[int] = set()
    layers = []
    for classes in tasks:
        new = [c for c in classes if c not in seen]
        seen.update(new)
        if new:
            layers.append(new)
    width = max(map(len, layers))
    return len(layers), {c: number * width + i for number, new in enumerate(layers) for i, c in enumerate(new)}
