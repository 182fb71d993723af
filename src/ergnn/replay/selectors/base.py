"""What a selector is given, what it gives back, and the choice of the best e a class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.objective import embed
from ergnn.errors import InputError, LeakageError
from ergnn.nn.examples import Examples
from ergnn.nn.heads import HeadPolicy
from ergnn.registry import check_choice

Target = Literal["train", "val", "test"]


@dataclass(frozen=True, eq=False)
class SelectionContext:
    """A task that has just been learnt, as a selector may see it.

    Args:
        task: the task; its test nodes' labels are only reached through :meth:`split`, which refuses them.
        model: the trained model.
        heads: which outputs stand for which classes.
        trained_on: the examples that were trained on, the task's own training nodes first, then replayed ones.
        l2: λ of the λ/2 ‖θ‖² in the minimised loss.
        per_class: e, how many nodes to choose a class; all of a class that has fewer.
        seed: decides every random choice.
        allow_test: whether test labels may be used; only for selectors that declare themselves ``leaky``.
    """

    task: Task
    model: nn.Module
    heads: HeadPolicy
    trained_on: Examples
    l2: float
    per_class: int
    seed: int
    allow_test: bool = False

    @property
    def graph(self) -> Graph:
        return self.task.graph

    @property
    def nodes(self) -> Tensor:
        """The candidates: the task's training nodes."""
        return self.task.train

    @property
    def labels(self) -> Tensor:
        return self.graph.y[self.nodes]

    def generator(self) -> torch.Generator:
        """A fresh random source; the same one at each call."""
        return torch.Generator().manual_seed((self.seed * 1_000_003 + self.task.id * 7919 + 17) % 2**63)

    def split(self, name: str) -> Tensor:
        """The task's nodes of a split, if the selector may see their labels."""
        check_choice("target", name, Target)
        if name == "test" and not self.allow_test:
            raise LeakageError("a selector asked for test labels without declaring itself leaky")
        nodes = getattr(self.task, name)
        if not nodes.numel():
            raise InputError(
                f"{self.task.name} has no {name} nodes; choose another target: {', '.join(get_args(Target))}"
            )
        return nodes

    def examples(self, split: str) -> Examples:
        """A split of the task as examples, with the loss that was trained with."""
        nodes = self.split(split)
        labels = self.graph.y[nodes]
        heads = self.heads.heads_of(self.task.id, nodes.numel(), nodes.device)
        weights = torch.ones(nodes.numel(), device=nodes.device)
        targets = self.heads.targets(self.task.id, labels)
        return Examples(self.graph, nodes, heads, targets, weights, {}, self.trained_on.loss)

    def embed(self, nodes: Tensor) -> Tensor:
        """What the output layer reads at these nodes."""
        return embed(self.model, self.graph, nodes)


@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen nodes, class by class, best first; their scores; and what is worth knowing about the choice."""

    nodes: Tensor
    scores: Tensor
    info: dict[str, Any] = field(default_factory=dict)


class Selector(ABC):
    """Chooses e training nodes a class after a task has been learnt.

    Most selectors only implement :meth:`score`; one that chooses nodes together overrides :meth:`select`.
    """

    @property
    def leaky(self) -> bool:
        """Whether the choice depends on test labels."""
        return False

    @abstractmethod
    def score(self, context: SelectionContext) -> Tensor:
        """How much each of ``context.nodes`` is worth remembering; larger is better."""

    def select(self, context: SelectionContext) -> Selection:
        return best_per_class(self.score(context), context)


def check_per_class(task: Task, per_class: int, hint: str = "") -> None:
    """Refuse an e that some class cannot give, before any training; ``hint`` says what to do instead."""
    if per_class < 1:
        raise InputError(f"per_class (e) is {per_class}; at least 1 node a class must be remembered")
    labels = task.graph.y[task.train]
    for c in task.classes:
        count = int((labels == c).sum())
        if count < per_class:
            raise InputError(
                f"{task.name}: class {c} has {count} training node(s), fewer than per_class (e) = {per_class}{hint}"
            )


def best_per_class(scores: Tensor, context: SelectionContext) -> Selection:
    """The e highest scores of each class; ties are broken by seed, never by the order of the nodes.

    ``info["tie_rate"]`` is the share of candidates whose score equals that of another one of their class.
    """
    if scores.shape != context.nodes.shape:
        raise InputError(f"a selector gave {tuple(scores.shape)} scores for {context.nodes.numel()} candidates")
    if not bool(torch.isfinite(scores).all()):
        raise InputError("a selector gave a score that is NaN or infinite")
    scores = scores.detach().cpu().double()
    labels = context.labels.cpu()
    shuffle = torch.randperm(scores.numel(), generator=context.generator())
    chosen, tied = [], 0
    for c in context.task.classes:
        members = shuffle[labels[shuffle] == c]
        order = torch.argsort(scores[members], descending=True, stable=True)
        chosen.append(members[order[: context.per_class]])
        _, counts = torch.unique(scores[members], return_counts=True)
        tied += int(counts[counts > 1].sum())
    index = torch.cat(chosen)
    device = context.nodes.device
    return Selection(
        context.nodes[index.to(device)], scores[index].float(), {"tie_rate": tied / max(scores.numel(), 1)}
    )
