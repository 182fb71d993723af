"""Which outputs answer for which classes.

``shared``
    One output layer for all tasks; a label is the class's place in its own task. (The task is known at test time.)
``per-task``
    One output layer a task. (The task is known at test time.)
``growing``
    One output layer a task, side by side under one softmax: every class seen so far competes, and the task may be
    unknown at test time.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from ergnn.errors import InputError, UnknownNameError

HEADS = ("shared", "per-task", "growing")


class HasHeads(Protocol):
    head_widths: list[int]

    def add_head(self, out_channels: int) -> None: ...


class HeadPolicy:
    """Keeps track of the classes that each task brought, and of the output that stands for each.

    Args:
        kind: ``shared``, ``per-task`` or ``growing``.
    """

    def __init__(self, kind: str) -> None:
        if kind not in HEADS:
            raise UnknownNameError("head", kind, HEADS)
        self.kind = kind
        self.classes: list[tuple[int, ...]] = []

    def add_task(self, model: HasHeads, classes: tuple[int, ...]) -> int:
        """Make room for a task's classes; returns the task's number."""
        if self.kind == "growing":
            again = set(classes) & {c for earlier in self.classes for c in earlier}
            if again:
                raise InputError(f"class {min(again)} was seen in an earlier task; a growing head takes it only once")
        if self.kind != "shared" or not self.classes:
            model.add_head(len(classes))
        elif len(classes) > model.head_widths[0]:
            raise InputError(
                f"a task of {len(classes)} classes does not fit the shared head of {model.head_widths[0]} outputs"
            )
        self.classes.append(tuple(classes))
        return len(self.classes) - 1

    def heads_of(self, task: int, count: int, device: torch.device) -> Tensor:
        """``[count, r]``: the heads that score examples of a task."""
        if self.kind == "growing":
            return torch.arange(len(self.classes), device=device).expand(count, -1)
        return torch.full((count, 1), 0 if self.kind == "shared" else task, dtype=torch.long, device=device)

    def targets(self, task: int, labels: Tensor) -> Tensor:
        """The output that stands for each label (a class of the task)."""
        hit = labels.unsqueeze(1) == torch.tensor(self.classes[task], device=labels.device)
        if not bool(hit.any(1).all()):
            wrong = int(labels[~hit.any(1)][0])
            raise InputError(f"label {wrong} is not one of task {task + 1}'s classes {self.classes[task]}")
        offset = task * self._width if self.kind == "growing" else 0
        return hit.int().argmax(1) + offset

    def columns(self, task: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
        """Outputs to choose from, and the class that each stands for; of one task, or (growing) of all."""
        if self.kind == "growing":
            tasks = range(len(self.classes)) if task is None else [task]
            pairs = [(t * self._width + i, c) for t in tasks for i, c in enumerate(self.classes[t])]
        elif task is None:
            raise InputError(f"head {self.kind!r} needs to know the task of the nodes; use head='growing' otherwise")
        else:
            pairs = list(enumerate(self.classes[task]))
        place, label = torch.tensor(pairs, device=device).T
        return place, label

    @property
    def _width(self) -> int:
        return max(len(classes) for classes in self.classes)
