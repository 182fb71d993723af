"""The interface of selectors, the choice of the e best nodes per class, and the spaces in which nodes are compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ergnn.config.errors import InputError, LeakageError, check_choice
from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.engine.outputs import embed, embed_together
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples
from ergnn.nn.heads import HeadPolicy

Target = Literal["train", "val", "test"]
SpaceName = Literal["feature", "embedding"]
Distance = Literal["euclidean", "cosine"]
ENTRIES = 1 << 22
"""Distances, or predictions of a set of nodes, per chunk."""


@dataclass(frozen=True, eq=False)
class SelectionContext:
    """The input of a selector: a task that has just been learned.

    Args:
        task: the task; labels of its test nodes are only available through :meth:`split`, which raises an error.
        model: the trained model.
        heads: mapping between outputs and classes.
        trained_on: the training examples, the task's training nodes first, then replayed ones.
        l2: λ of the term λ/2 ‖θ‖² in the minimized loss.
        per_class: e, the number of nodes to choose per class; all nodes of a class that has fewer.
        seed: seed of all random choices.
        allow_test: whether test labels may be used; only for selectors that declare themselves ``leaky``.
        embeddings: embeddings of the candidates, if they are already computed.
    """

    task: Task
    model: nn.Module
    heads: HeadPolicy
    trained_on: Examples
    l2: float
    per_class: int
    seed: int
    allow_test: bool = False
    embeddings: Tensor | None = None

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
        """Return a new random generator with the same seed at each call."""
        return self.task.generator(self.seed, 17)

    def split(self, name: str) -> Tensor:
        """Return the task's nodes of a split, if the selector may see their labels."""
        check_choice("target", name, Target)
        if name == "test" and not self.allow_test:
            raise LeakageError("a selector requested test labels without declaring itself leaky")
        nodes = getattr(self.task, name)
        if not nodes.numel():
            raise InputError(
                f"{self.task.name} has no {name} nodes; choose another target: {', '.join(get_args(Target))}"
            )
        return nodes

    @property
    def labeled(self) -> Tensor:
        """The labeled nodes of the task: train ∪ val (there may be no validation nodes)."""
        return torch.cat([self.split("train"), self.task.val])

    def examples(self, split: str) -> Examples:
        """Return a split of the task as examples, with the training loss."""
        return self.as_examples(self.split(split))

    def as_examples(self, nodes: Tensor) -> Examples:
        return self.heads.examples(self.graph, nodes, self.task.id, self.trained_on.loss)

    def embed(self, nodes: Tensor) -> Tensor:
        """Return the embeddings of these nodes (the input of the output layer)."""
        if self.embeddings is None:
            return embed(self.model, self.graph, nodes)
        row_of = torch.empty(self.graph.num_nodes, dtype=torch.long, device=nodes.device)
        row_of[self.nodes] = torch.arange(self.nodes.numel(), device=nodes.device)
        return self.embeddings[row_of[nodes]]


@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen nodes, grouped by class and best first, their scores, and information about the choice."""

    nodes: Tensor
    scores: Tensor
    info: dict[str, Any] = field(default_factory=dict)


class Selector:
    """Chooses e training nodes per class after a task is learned.

    Most selectors only implement :meth:`score`; a selector that chooses nodes jointly implements :meth:`select`.

    Attributes:
        leaky: whether the choice depends on test labels.
        space: the space in which candidates, and no other nodes, are compared, if any.
    """

    leaky: bool = False
    space: Space | None = None

    def score(self, context: SelectionContext) -> Tensor:
        """Score each of ``context.nodes``; larger is better."""
        raise NotImplementedError(f"{type(self).__name__} has neither score() nor select()")

    def select(self, context: SelectionContext) -> Selection:
        return best_per_class(self.score(context), context)

    def select_together(self, contexts: Sequence[SelectionContext]) -> list[Selection]:
        """Select for several models that were trained side by side; equal to :meth:`select` up to rounding.

        A selector that overrides it has hashable attributes: those with equal ones share a call.
        """
        return [self.select(context) for context in contexts]


def select_together(selectors: Sequence[Selector], contexts: Sequence[SelectionContext]) -> list[Selection]:
    """Apply a selector to each of several models trained side by side, sharing passes for embeddings and influence."""
    contexts = list(contexts)
    spaces = [selector.space for selector in selectors]
    reading = [i for i, space in enumerate(spaces) if isinstance(space, Space) and space.name == "embedding"]
    for graph in {id(contexts[i].graph): contexts[i].graph for i in reading}.values():
        group = [i for i in reading if contexts[i].graph is graph]
        models = [model for i in group if isinstance(model := contexts[i].model, Backbone)]
        for i, value in zip(group, embed_together(models, graph, [contexts[i].nodes for i in group]), strict=True):
            contexts[i] = replace(contexts[i], embeddings=value)
    groups: dict[Any, list[int]] = {}
    for i, selector in enumerate(selectors):
        alone = type(selector).select_together is Selector.select_together
        groups.setdefault(i if alone else (type(selector), *vars(selector).items()), []).append(i)
    chosen: dict[int, Selection] = {}
    for group in groups.values():
        selections = selectors[group[0]].select_together([contexts[i] for i in group])
        chosen.update(zip(group, selections, strict=True))
    return [chosen[i] for i in range(len(selectors))]


def best_per_class(scores: Tensor, context: SelectionContext) -> Selection:
    """Choose the e highest scores of each class; ties are broken by seed, never by node order.

    ``info["tie_rate"]`` is the fraction of candidates whose score equals that of another candidate of their class.
    """
    if scores.shape != context.nodes.shape:
        raise InputError(f"a selector returned {tuple(scores.shape)} scores for {context.nodes.numel()} candidates")
    if not bool(torch.isfinite(scores).all()):
        raise InputError("a selector returned a score that is NaN or infinite")
    scores, device = scores.detach().double(), context.nodes.device
    labels = context.labels.to(scores.device)
    shuffle = torch.randperm(scores.numel(), generator=context.generator()).to(scores.device)
    order = shuffle[torch.argsort(scores[shuffle], descending=True, stable=True)]
    chosen, tied = [], torch.zeros((), dtype=torch.long, device=scores.device)
    for c in context.task.classes:
        members = order[labels[order] == c]
        chosen.append(members[: context.per_class])
        equal = F.pad(scores[members].diff() == 0, (1, 1))
        tied += (equal[1:] | equal[:-1])[: members.numel()].sum()
    index = torch.cat(chosen)
    tie_rate = int(tied) / max(scores.numel(), 1)
    return Selection(context.nodes[index.to(device)], scores[index].float().cpu(), {"tie_rate": tie_rate})


@dataclass(frozen=True)
class Space:
    """The space in which nodes are compared.

    Args:
        name: ``feature`` (x_i) or ``embedding`` (h_i, the input of the output layer).
        distance: ``euclidean``, or ``cosine`` (1 − cos).
        normalize: divide each vector by its length first.
    """

    name: SpaceName
    distance: Distance
    normalize: bool

    def __post_init__(self) -> None:
        check_choice("space", self.name, SpaceName)
        check_choice("distance", self.distance, Distance)

    def vectors(self, context: SelectionContext, nodes: Tensor) -> Tensor:
        rows = context.graph.rows(nodes) if self.name == "feature" else context.embed(nodes)
        rows = rows.double()
        return F.normalize(rows, dim=1) if self.normalize else rows

    def distances(self, a: Tensor, b: Tensor) -> Tensor:
        """Return all distances between the rows of ``a`` and of ``b``."""
        if self.distance == "cosine":
            return 1.0 - F.normalize(a, dim=1) @ F.normalize(b, dim=1).T
        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")

    def chunks(self, a: Tensor, b: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``distances(a, b)`` in chunks of rows: positions in ``a``, and their rows."""
        step = max(1, ENTRIES // max(b.size(0), 1))
        for index in torch.arange(a.size(0), device=a.device).split(step):
            yield index, self.distances(a[index], b)
