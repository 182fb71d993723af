"""Selectors that choose the nodes of a class one after another, each depending on those before it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ergnn.replay.selectors.base import Selection, SelectionContext, Selector
from ergnn.replay.selectors.spaces import Space, SpaceName

Values = Callable[[Tensor], Tensor]
"""``chosen rows [classes, k] → value of each row as the next one, [classes, n]``; called for k = 0, 1, 2, …

It should not synchronize with a GPU, as hundreds of nodes may be chosen.
"""


class GreedySelector(Selector):
    """Chooses the nodes of each class by the highest value given those already chosen; all classes at the same time.

    Args:
        space: ``feature`` or ``embedding``.
        normalize: divide each vector by its length first.
    """

    def __init__(self, space: SpaceName = "embedding", normalize: bool = False) -> None:
        self.space = Space(space, "euclidean", normalize)

    @abstractmethod
    def values(self, vectors: Tensor, sizes: Tensor) -> Values:
        """The value of each row as the next choice of its class; ties go to the first row, which is random by seed.

        Args:
            vectors: ``[classes, n, d]``; classes with fewer than n rows are padded with zeros.
            sizes: number of rows of each class.
        """

    @property
    def reads_embeddings(self) -> bool:
        return self.space.space == "embedding"

    @property
    def batch_key(self) -> Hashable:
        options = {**vars(self), "space": tuple(vars(self.space).items())}
        return type(self), *options.items()

    def score(self, context: SelectionContext) -> Tensor:
        """The value of every node as the first choice."""
        scores = torch.empty(context.nodes.numel(), dtype=torch.float64, device=context.nodes.device)
        for c in context.task.classes:
            own = context.labels == c
            vectors = self.space.vectors(context, context.nodes[own])
            scores[own] = self._values([vectors])(context.nodes[:0].view(1, 0))[0].double()
        return scores

    def select(self, context: SelectionContext) -> Selection:
        return self.select_together([context])[0]

    def select_together(self, contexts: Sequence[SelectionContext]) -> list[Selection]:
        classes = [(context, nodes) for context in contexts for nodes in _shuffled_classes(context)]
        values = self._values([self.space.vectors(*each) for each in classes])
        most = [min(context.per_class, nodes.numel()) for context, nodes in classes]
        rows = torch.zeros(len(classes), max(most), dtype=torch.long, device=contexts[0].nodes.device)
        scores = rows.double()
        taken = pad_sequence(
            [torch.zeros_like(nodes) for _, nodes in classes], batch_first=True, padding_value=1
        ).bool()
        for k in range(max(most)):
            value = values(rows[:, :k]).double().masked_fill(taken, -float("inf"))
            scores[:, k : k + 1], rows[:, k : k + 1] = value.max(1, keepdim=True)
            taken.scatter_(1, rows[:, k : k + 1], True)
        found = iter(zip(classes, rows, scores.float().cpu(), most, strict=True))
        selections = []
        for context in contexts:
            own = [next(found) for _ in context.task.classes]
            chosen = torch.cat([nodes[row[:count]] for (_, nodes), row, _, count in own])
            selections.append(Selection(chosen, torch.cat([score[:count] for *_, score, count in own])))
        return selections

    def _values(self, vectors: Sequence[Tensor]) -> Values:
        sizes = torch.tensor([each.size(0) for each in vectors], device=vectors[0].device)
        return self.values(pad_sequence(list(vectors), batch_first=True), sizes)


def row_of(vectors: Tensor, chosen: Tensor) -> Tensor:
    """Return the vector of the last chosen row of each class, ``[classes, 1, d]``."""
    return vectors.gather(1, chosen[:, -1:, None].expand(-1, -1, vectors.size(2)))


def _shuffled_classes(context: SelectionContext) -> list[Tensor]:
    """Return the candidates of each class in random order, by seed."""
    shuffle = torch.randperm(context.nodes.numel(), generator=context.generator()).to(context.nodes.device)
    nodes, labels = context.nodes[shuffle], context.labels[shuffle]
    return [nodes[labels == c] for c in context.task.classes]
