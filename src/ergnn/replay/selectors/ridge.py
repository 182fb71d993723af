"""Joint choice of nodes: the set from which kernel ridge regression best predicts the task's labels.

``s2-ridge`` and ``mf-s2`` need no model: they compare nodes by propagated features ``S^K X``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import check_at_least
from ergnn.config.registry import inherit_options
from ergnn.data.graph import Graph
from ergnn.engine.propagation import propagate
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import ENTRIES, Selection, SelectionContext, Selector

TIE = 1e-9
"""Qualities that differ by less are ties, which the seed breaks."""
EXHAUSTIVE = 10_000
"""With more than two classes, exhaustive search over at most this many sets of one candidate per class."""
RESTARTS = 8
"""Random starts of the search, if there are too many sets to try all."""
RIDGE, SHARPNESS = 0.1, 4.0
"""λ, as a multiple of the mean of ``k(v, v)`` over the candidates, and τ."""
HOPS = 2


class RidgeProblem:
    """The quality ``Q(S)`` of a set of candidates.

    There is one function for two classes, and one per class for more (one versus rest): with ``s_v = ±1`` and
    ``α = (K_SS + λI)⁻¹ s_S`` it is ``f_S(u) = Σ_{v∈S} α_v k(v, u)``. Over the targets T,

        Q(S) = mean_{u∈T} log σ(τ s_u f_S(u)),                        one function (one class or two),
        Q(S) = mean_{u∈T} log softmax(τ/2 · f_S(u))_{y_u},            one per class,

    which are equal for two classes, where one function is the negative of the other. λ and τ are :data:`RIDGE`
    (relative) and :data:`SHARPNESS`.

    Args:
        kernel: ``[1 or functions, candidates, nodes]``; the first nodes are the candidates.
        classes: class of each node, ``[nodes]``, as a position in the task.
        num_classes: number of classes.
        targets: positions of T among the nodes.
    """

    def __init__(self, kernel: Tensor, classes: Tensor, num_classes: int, targets: Tensor) -> None:
        hit = F.one_hot(classes, num_classes).T
        self.signs = 2.0 * (hit if num_classes > 2 else hit[-1:]).to(kernel.dtype) - 1.0
        self.kernel, self.targets, self.right = kernel, targets, classes[targets]
        size = kernel.diagonal(dim1=1, dim2=2).mean(1)
        self.penalty = torch.where(size > 0, RIDGE * size, 1.0).unsqueeze(1)

    def qualities(self, chosen: Sequence[int], extra: Tensor) -> Tensor:
        """Compute ``Q(S ∪ {v})`` for every ``v`` of ``extra`` (none of them in S), from one solve with S.

        With ``R = K − K_{·S} (K_SS + λI)⁻¹ K_{S·}`` the function grows by
        ``(s_v − f_S(v)) / (R_vv + λ) · R_{v·}``.
        """
        inside = torch.tensor(list(chosen), dtype=torch.long, device=extra.device)
        rows = self.kernel[:, inside]
        diagonal = torch.diag_embed(self.penalty.expand(-1, inside.numel()))
        solved = torch.linalg.solve(rows[:, :, inside] + diagonal, rows)
        f = (self.signs[:, inside].unsqueeze(1) @ solved).squeeze(1)
        step = max(1, ENTRIES // f.numel())
        return torch.cat([self._grown(f, solved, inside, candidates) for candidates in extra.split(step)])

    def quality(self, chosen: Sequence[int]) -> float:
        """Compute ``Q(S)``."""
        if not chosen:
            return float(self._mean_log(self.signs.new_zeros(self.signs.size(0), 1, self.targets.numel())))
        last = torch.tensor(chosen[-1:], device=self.kernel.device)
        return float(self.qualities(chosen[:-1], last))

    def _grown(self, f: Tensor, solved: Tensor, inside: Tensor, candidates: Tensor) -> Tensor:
        rows = self.kernel[:, candidates]
        left = rows - rows[:, :, inside] @ solved
        pivot = left[:, torch.arange(candidates.numel(), device=candidates.device), candidates] + self.penalty
        step = (self.signs[:, candidates] - f[:, candidates]) / pivot
        grown = f[:, self.targets].unsqueeze(1) + step.unsqueeze(2) * left[:, :, self.targets]
        return self._mean_log(grown)

    def _mean_log(self, f: Tensor) -> Tensor:
        if f.size(0) == 1:
            return F.logsigmoid(SHARPNESS * self.signs[0, self.targets] * f[0]).mean(1)
        log = F.log_softmax(SHARPNESS / 2 * f, dim=0)
        right = self.right.expand(1, f.size(1), -1)
        return log.gather(0, right)[0].mean(1)


def choose_one_each(
    problem: RidgeProblem, members: Sequence[Tensor], restarts: int, generator: torch.Generator
) -> list[int]:
    """Choose one candidate per class, by exhaustive search for two classes or few sets, otherwise by ascent."""
    if len(members) <= 2 or math.prod(candidates.numel() for candidates in members) <= EXHAUSTIVE:
        return best_of_all(problem, members)
    return ascent(problem, members, restarts, generator)


def best_of_all(problem: RidgeProblem, members: Sequence[Tensor]) -> list[int]:
    """Choose the best set of one candidate per class by exhaustive search."""
    sets = list(product(*(candidates.tolist() for candidates in members[:-1])))
    values = torch.cat([problem.qualities(chosen, members[-1]) for chosen in sets])
    i, j = divmod(_first_best(values), members[-1].numel())
    return [*sets[i], int(members[-1][j])]


def ascent(problem: RidgeProblem, members: Sequence[Tensor], restarts: int, generator: torch.Generator) -> list[int]:
    """Choose one candidate per class by coordinate ascent, and return the best local optimum.

    The candidate of one class at a time is replaced by the best one until nothing changes. The first start is greedy,
    class after class; ``restarts`` further starts are random.
    """
    greedy: list[int] = []
    for of_class in members:
        greedy.append(int(of_class[_first_best(problem.qualities(greedy, of_class))]))
    starts = [greedy]
    for _ in range(restarts):
        starts.append([int(p[int(torch.randint(p.numel(), (1,), generator=generator))]) for p in members])
    optima = [_ascend(problem, members, start) for start in starts]
    return optima[_first_best(torch.tensor([problem.quality(chosen) for chosen in optima], dtype=torch.double))]


def _ascend(problem: RidgeProblem, members: Sequence[Tensor], start: list[int]) -> list[int]:
    chosen, best, changed = list(start), problem.quality(start), True
    while changed:
        changed = False
        for c, candidates in enumerate(members):
            values = problem.qualities(chosen[:c] + chosen[c + 1 :], candidates)
            i = _first_best(values)
            if float(values[i]) > best + TIE:
                chosen[c], best, changed = int(candidates[i]), float(values[i]), True
    return chosen


def _first_best(values: Tensor) -> int:
    """Return the first of the best candidates; the seed decides their order."""
    return int((values >= values.max() - TIE).int().argmax())


class Ridge(Selector):
    """Chooses the set with the highest ``Q(S)`` (see :class:`RidgeProblem`), over train and val nodes of the task.

    The first nodes of all classes are chosen jointly; then each class in turn adds the node that increases Q most,
    until all have e. A node's score is the increase of Q when it was added.

    Args:
        pool: maximum number of candidates per class (but at least e), sampled by seed if there are more.
        targets: maximum number of targets, sampled by seed if there are more.
    """

    def __init__(self, pool: int = 100, targets: int = 2000) -> None:
        check_at_least(1, pool=pool, targets=targets)
        self.pool, self.targets = pool, targets

    @abstractmethod
    def kernel(self, context: SelectionContext, candidates: Tensor, others: Tensor) -> Tensor:
        """Compute ``k(v, u)`` of candidates v with ``candidates`` and ``others`` u, ``[1 or classes, v, u]``, float64.

        One kernel for all functions, or (with more than two classes) one per function.
        """

    def select(self, context: SelectionContext) -> Selection:
        generator = context.generator()
        shuffle = torch.randperm(context.nodes.numel(), generator=generator).to(context.nodes.device)
        labels = context.labels[shuffle]
        pools = [shuffle[labels == c][: max(self.pool, context.per_class)] for c in context.task.classes]
        candidates = context.nodes[torch.cat(pools)]
        problem = self.problem(context, candidates)
        members = torch.arange(candidates.numel(), device=candidates.device).split([len(pool) for pool in pools])
        first = choose_one_each(problem, members, RESTARTS, generator)
        quality = problem.quality(first)
        gains = [[quality - problem.quality(first[:c] + first[c + 1 :])] for c in range(len(first))]
        chosen, rows = list(first), [[v] for v in first]
        for _ in range(context.per_class - 1):
            for c, of_class in enumerate(members):
                free = of_class[~torch.isin(of_class, torch.tensor(rows[c], device=of_class.device))]
                if not free.numel():  # the class has fewer than e nodes
                    continue
                values = problem.qualities(chosen, free)
                i = _first_best(values)
                gains[c].append(float(values[i]) - quality)
                rows[c].append(int(free[i]))
                chosen.append(int(free[i]))
                quality = float(values[i])
        index = torch.tensor([v for row in rows for v in row], device=candidates.device)
        info = {"quality": quality, "candidates": candidates.numel(), "targets": problem.targets.numel()}
        return Selection(candidates[index], torch.tensor([g for row in gains for g in row]), info)

    def problem(self, context: SelectionContext, candidates: Tensor) -> RidgeProblem:
        """Create the problem for the given candidates."""
        targets = context.labeled
        if targets.numel() > self.targets:
            drawn = torch.randperm(targets.numel(), generator=context.generator())[: self.targets]
            targets = targets[drawn.to(targets.device)]
        others = targets[~torch.isin(targets, candidates)]
        nodes = torch.cat([candidates, others])
        positions = torch.isin(nodes, targets).nonzero().flatten()
        kernel = self.kernel(context, candidates, others)
        return RidgeProblem(kernel, context.task.targets(nodes), len(context.task.classes), positions)


def smoothed(graph: Graph, nodes: Tensor, hops: int = HOPS) -> Tensor:
    """Compute ``(S^K X)_u / ‖(S^K X)_u‖`` with ``S = D̃^-½ (A + I) D̃^-½``, for the given nodes, as float64.

    Rows of zeros stay zeros.
    """
    return F.normalize(propagate(graph, hops, nodes=nodes).double(), dim=1)


@SELECTORS.register("s2-ridge", help="nodes from which ridge regression on S²X best predicts the task's labels")
class SmoothedRidge(Ridge):
    """The best set for ``k(u, v) = ⟨g_u, g_v⟩``, ``g_u = (S²X)_u / ‖·‖``.

    Args:
        hops: number of times S is applied.
    """

    @inherit_options(Ridge)
    def __init__(self, *, hops: int = HOPS, **options: Any) -> None:
        check_at_least(0, hops=hops)
        super().__init__(**options)
        self.hops = hops

    def kernel(self, context: SelectionContext, candidates: Tensor, others: Tensor) -> Tensor:
        vectors = smoothed(context.graph, torch.cat([candidates, others]), self.hops)
        return (vectors[: candidates.numel()] @ vectors.T).unsqueeze(0)


@SELECTORS.register("mf-s2", help="closest to the class mean of normalized S²X over train and val nodes (model-free)")
class SmoothedMean(Selector):
    """Nodes closest to ``c_l = 1/|T_l| Σ_{u∈T_l} g_u``, ``g_u = (S²X)_u / ‖·‖``, T the task's train and val nodes.

    An ablation that separates the effect of the space of ``s2-ridge`` from that of its choice of a set.

    Args:
        hops: number of times S is applied.
    """

    def __init__(self, hops: int = HOPS) -> None:
        check_at_least(0, hops=hops)
        self.hops = hops

    def score(self, context: SelectionContext) -> Tensor:
        nodes, classes = context.labeled, context.labels
        vectors, labels = smoothed(context.graph, nodes, self.hops), context.graph.y[nodes]
        candidates = vectors[: context.nodes.numel()]
        scores = candidates.new_empty(candidates.size(0))
        for c in context.task.classes:
            scores[classes == c] = -(candidates[classes == c] - vectors[labels == c].mean(0)).norm(dim=1)
        return scores
