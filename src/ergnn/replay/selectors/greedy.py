"""Selectors that choose the nodes of a class one after another, each depending on those before it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ergnn.config.errors import check_between
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import Selection, SelectionContext, Selector, Space, SpaceName

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

    space: Space

    def __init__(self, space: SpaceName = "embedding", normalize: bool = False) -> None:
        self.space = Space(space, "euclidean", normalize)

    @abstractmethod
    def values(self, vectors: Tensor, sizes: Tensor) -> Values:
        """The value of each row as the next choice of its class; ties go to the first row, which is random by seed.

        Args:
            vectors: ``[classes, n, d]``; classes with fewer than n rows are padded with zeros.
            sizes: number of rows of each class.
        """

    def select(self, context: SelectionContext) -> Selection:
        return self.select_together([context])[0]

    def select_together(self, contexts: Sequence[SelectionContext]) -> list[Selection]:
        classes = [(context, nodes) for context in contexts for nodes in _shuffled_classes(context)]
        sizes = torch.tensor([nodes.numel() for _, nodes in classes], device=contexts[0].nodes.device)
        vectors = [self.space.vectors(context, nodes) for context, nodes in classes]
        values = self.values(pad_sequence(vectors, batch_first=True), sizes)
        most = [min(context.per_class, nodes.numel()) for context, nodes in classes]
        rows = torch.zeros(len(classes), max(most), dtype=torch.long, device=contexts[0].nodes.device)
        scores = rows.double()
        taken = pad_sequence([nodes < 0 for _, nodes in classes], batch_first=True, padding_value=True)
        for k in range(max(most)):
            value = values(rows[:, :k]).double().masked_fill(taken, -float("inf"))
            scores[:, k : k + 1], rows[:, k : k + 1] = value.max(1, keepdim=True)
            taken.scatter_(1, rows[:, k : k + 1], True)
        chosen = [nodes[row[:count]] for (_, nodes), row, count in zip(classes, rows, most, strict=True)]
        best = [score[:count] for score, count in zip(scores.float().cpu(), most, strict=True)]
        selections, start = [], 0
        for context in contexts:
            of_context = slice(start, start := start + len(context.task.classes))
            selections.append(Selection(torch.cat(chosen[of_context]), torch.cat(best[of_context])))
        return selections


def _shuffled_classes(context: SelectionContext) -> list[Tensor]:
    """Return the candidates of each class in random order, by seed."""
    shuffle = torch.randperm(context.nodes.numel(), generator=context.generator()).to(context.nodes.device)
    nodes, labels = context.nodes[shuffle], context.labels[shuffle]
    return [nodes[labels == c] for c in context.task.classes]


def row_of(vectors: Tensor, chosen: Tensor) -> Tensor:
    """Return the vector of the last chosen row of each class, ``[classes, 1, d]``."""
    return vectors.gather(1, chosen[:, -1:, None].expand(-1, -1, vectors.size(2)))


@SELECTORS.register("herding", help="the mean of the chosen nodes stays closest to the class mean (iCaRL)")
class Herding(GreedySelector):
    """Herding (Welling, 2009) as in iCaRL (Rebuffi et al., 2017).

    The k-th node of a class is ``argmin_v ‖μ − 1/k (h_v + Σ_{j<k} h_{v_j})‖`` with the class mean μ of the vectors h,
    so that the first is the node nearest to μ. iCaRL scales h to length 1 (``normalize``).
    """

    def values(self, vectors: Tensor, sizes: Tensor) -> Values:
        mean = vectors.sum(1, keepdim=True) / sizes.view(-1, 1, 1)
        total = torch.zeros_like(mean)

        def value(chosen: Tensor) -> Tensor:
            nonlocal total
            total = total + row_of(vectors, chosen) if chosen.size(1) else total
            return -(mean - (vectors + total) / (chosen.size(1) + 1)).norm(dim=2)

        return value


@SELECTORS.register("k-center", help="each next node is farthest from the chosen ones of its class (k-center, coreset)")
class KCenter(GreedySelector):
    """Greedy k-center (Gonzalez, 1985; Sener and Savarese, 2018).

    The first node of a class is the one nearest to the class mean, the k-th is ``argmax_v min_{j<k} ‖h_v − h_{v_j}‖``.
    The largest distance of a node to the nearest chosen one is at most twice the smallest possible for e nodes.
    """

    def values(self, vectors: Tensor, sizes: Tensor) -> Values:
        nearest = torch.full_like(vectors[..., 0], float("inf"))

        def value(chosen: Tensor) -> Tensor:
            nonlocal nearest
            if not chosen.size(1):
                return -(vectors - vectors.sum(1, keepdim=True) / sizes.view(-1, 1, 1)).norm(dim=2)
            nearest = torch.minimum(nearest, (vectors - row_of(vectors, chosen)).norm(dim=2))
            return nearest

        return value


@SELECTORS.register("dslr", help="greedy cover of the class in embedding space (coverage-based diversity)")
class CoverageDiversity(GreedySelector):
    """Coverage-based diversity of DSLR (Choi et al., 2024).

    A node covers the nodes of its class nearer than d, ``C(v) = {u : ‖h_u − h_v‖ < d}``, where d is ``ratio``
    times the mean distance between two nodes of the class. The k-th node is the one that covers most nodes
    not covered yet: ``argmax_v |C(v) \\ ∪_{j<k} C(v_j)|``.

    Args:
        ratio: d as a fraction of the mean distance.
    """

    def __init__(self, ratio: float = 0.1, space: SpaceName = "embedding", normalize: bool = False) -> None:
        check_between(0, float("inf"), ratio=ratio)
        super().__init__(space, normalize)
        self.ratio = ratio

    def values(self, vectors: Tensor, sizes: Tensor) -> Values:
        width = vectors.size(1)
        pairs = [self._covered(rows[:n]) + i * width for i, (rows, n) in enumerate(zip(vectors, sizes, strict=True))]
        center, covered = torch.cat(pairs, dim=1)  # positions in all classes together
        first = torch.arange(sizes.numel(), device=sizes.device) * width
        open_nodes = torch.ones(vectors[..., 0].numel(), dtype=torch.float64, device=vectors.device)

        def value(chosen: Tensor) -> Tensor:
            nonlocal open_nodes
            if chosen.size(1):
                new = torch.zeros_like(open_nodes).index_fill_(0, chosen[:, -1] + first, 1.0)
                closed = torch.zeros_like(open_nodes).index_add_(0, covered, new[center])
                open_nodes = open_nodes.masked_fill(closed > 0, 0.0)
            return torch.zeros_like(open_nodes).index_add_(0, center, open_nodes[covered]).view(vectors.shape[:2])

        return value

    def _covered(self, vectors: Tensor) -> Tensor:
        """Return the pairs of a node and one that it covers, ``[2, pairs]``."""
        n = vectors.size(0)
        total = sum(float(distances.sum()) for _, distances in self.space.chunks(vectors, vectors))
        d = self.ratio * total / max(n * (n - 1), 1)
        pairs = []
        for rows, distances in self.space.chunks(vectors, vectors):
            i, j = (distances < d).nonzero().unbind(1)
            pairs.append(torch.stack([rows[i], j]))
        return torch.cat(pairs, dim=1)
