"""Which output stands for which class.

``shared``
    One output layer for all tasks; a label is the class's place in its own task. (The task is known at test time.)
``per-task``
    One output layer per task. (The task is known at test time.)
``growing``
    One output layer for the new classes of each task, side by side under one softmax: every class seen so far
    competes, and the task may be unknown at test time. A task may bring earlier classes again; they keep their outputs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from ergnn.config import HEADS
from ergnn.errors import InputError, UnknownNameError


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
        """Add the outputs of a task's classes; returns the task's number."""
        new = self._unseen(classes) if self.kind == "growing" else classes
        if self.kind == "shared" and self.classes:
            if len(classes) > model.head_widths[0]:
                raise InputError(
                    f"a task of {len(classes)} classes does not fit the shared head of {model.head_widths[0]} outputs, "
                    "as wide as the first task; put the task with the most classes first, or use head='per-task'"
                )
        elif new:
            model.add_head(len(new))
        self.classes.append(tuple(classes))
        return len(self.classes) - 1

    def heads_of(self, task: int, count: int, device: torch.device) -> Tensor:
        """``[count, r]``: the heads that score examples of a task."""
        if self.kind == "growing":
            return torch.arange(len(self._heads()), device=device).expand(count, -1)
        return torch.full((count, 1), 0 if self.kind == "shared" else task, dtype=torch.long, device=device)

    def targets(self, task: int, labels: Tensor) -> Tensor:
        """The output that stands for each label (a class of the task)."""
        classes = self.classes[task]
        hit = labels.unsqueeze(1) == torch.tensor(classes, device=labels.device)
        if not bool(hit.any(1).all()):
            wrong = int(labels[~hit.any(1)][0])
            raise InputError(f"label {wrong} is not one of task {task + 1}'s classes {classes}")
        return torch.tensor(self._outputs(task), device=labels.device)[hit.int().argmax(1)]

    def columns(self, task: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
        """Outputs to choose from, and the class that each stands for; of one task, or (growing) of all."""
        if task is not None:
            pairs = list(zip(self._outputs(task), self.classes[task], strict=True))
        elif self.kind == "growing":
            pairs = [(output, c) for c, output in self._places().items()]
        else:
            raise InputError(f"head {self.kind!r} needs to know the task of the nodes; use head='growing' otherwise")
        place, label = torch.tensor(pairs, device=device).T
        return place, label

    def _outputs(self, task: int) -> list[int]:
        """The output of each of a task's classes."""
        if self.kind != "growing":
            return list(range(len(self.classes[task])))
        places = self._places()
        return [places[c] for c in self.classes[task]]

    def _unseen(self, classes: tuple[int, ...]) -> tuple[int, ...]:
        seen = {c for earlier in self.classes for c in earlier}
        return tuple(c for c in classes if c not in seen)

    def _heads(self) -> tuple[tuple[int, ...], ...]:
        """Of a growing head: the classes of each of its output layers."""
        return _new_classes(tuple(self.classes))

    def _places(self) -> dict[int, int]:
        """Of a growing head: class → output; every layer has as many outputs as the widest."""
        return _output_places(self._heads())


@lru_cache(maxsize=64)  # each of many experiences asks for the heads of all tasks
def _new_classes(tasks: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """The classes of each task that no earlier task has, where there are any."""
    seen: set[int] = set()
    heads = []
    for classes in tasks:
        new = tuple(c for c in classes if c not in seen)
        seen.update(new)
        if new:
            heads.append(new)
    return tuple(heads)


@lru_cache(maxsize=64)
def _output_places(heads: tuple[tuple[int, ...], ...]) -> dict[int, int]:
    width = max(len(classes) for classes in heads)
    return {c: number * width + i for number, classes in enumerate(heads) for i, c in enumerate(classes)}
