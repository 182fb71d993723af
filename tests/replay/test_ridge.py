"""Jointly chosen sets against brute force over all sets."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ergnn.replay import SelectionContext
from ergnn.replay.selectors import ridge
from ergnn.replay.selectors.gradients import LinearizedRidge
from ergnn.replay.selectors.ridge import RidgeProblem, SmoothedRidge, ascent, best_of_all, choose_one_each
from ergnn.testing import example_context

BOTH = [SmoothedRidge, LinearizedRidge]


def quality(
    kernels: Sequence[Tensor], penalties: Sequence[float], chosen: list[int], classes: list[int], targets: list[int]
) -> float:
    """Q(S) by its definition: ``kernels`` are one for each function, ``[candidates, nodes]``."""
    many, total = max(classes) > 1, 0.0
    functions = []
    for c, (k, penalty) in enumerate(zip(kernels, penalties, strict=True)):
        one = c if many else max(classes)
        s = torch.tensor([1.0 if classes[v] == one else -1.0 for v in chosen], dtype=torch.double)
        inner = torch.tensor([[float(k[v, w]) for w in chosen] for v in chosen], dtype=torch.double)
        alpha = torch.linalg.solve(inner + penalty * torch.eye(len(chosen)).double(), s).tolist() if chosen else []
        functions.append([sum(a * float(k[v, u]) for a, v in zip(alpha, chosen, strict=True)) for u in targets])
    for i, u in enumerate(targets):
        if many:
            z = [2.0 * f[i] for f in functions]
            total += z[classes[u]] - math.log(sum(math.exp(a) for a in z))
        else:
            s = 1.0 if classes[u] == max(classes) else -1.0
            total += -math.log1p(math.exp(-4.0 * s * functions[0][i]))
    return total / len(targets)


def written_out(problem: RidgeProblem, classes: list[int], chosen: list[int]) -> float:
    count = problem.signs.size(0)
    kernels = list(problem.kernel.expand(count, -1, -1))
    penalties = [0.1 * float(sum(k[v, v] for v in range(k.size(0)))) / k.size(0) for k in kernels]
    return quality(kernels, penalties, chosen, classes, problem.targets.tolist())


def random_problem(
    sizes: list[int], others: int, seed: int, own_kernels: bool = False
) -> tuple[RidgeProblem, list[int], list[Tensor]]:
    """Candidates of each class, then other nodes; also the nodes' classes and each class's candidates."""
    generator = torch.Generator().manual_seed(seed)
    classes = [c for c, size in enumerate(sizes) for _ in range(size)]
    members = list(torch.arange(len(classes)).split(sizes))
    classes += [i % len(sizes) for i in range(others)]
    kinds = len(sizes) if own_kernels and len(sizes) > 2 else 1
    center = torch.randn(kinds, len(sizes), 4, generator=generator, dtype=torch.double)[:, classes]
    g = center + 1.5 * torch.randn(kinds, len(classes), 4, generator=generator, dtype=torch.double)
    kernel = g[:, : sum(sizes)] @ g.transpose(1, 2)
    targets = torch.randperm(len(classes), generator=generator)[: len(classes) - 1].sort().values
    return RidgeProblem(kernel, torch.tensor(classes), len(sizes), targets), classes, members


@given(
    st.lists(st.integers(2, 4), min_size=1, max_size=4),
    st.integers(0, 6),
    st.integers(0, 5),
    st.booleans(),
    st.integers(0, 999),
)
@settings(max_examples=40, deadline=None)
def test_quality_equals_its_definition_for_every_addition(sizes, others, count, own_kernels, seed):
    problem, classes, _ = random_problem(sizes, others, seed, own_kernels)
    order = torch.randperm(sum(sizes), generator=torch.Generator().manual_seed(seed)).tolist()
    chosen, extra = order[: min(count, len(order) - 1)], order[min(count, len(order) - 1) :]
    assert problem.quality(chosen) == pytest.approx(written_out(problem, classes, chosen), abs=1e-9)
    expected = [written_out(problem, classes, [*chosen, v]) for v in extra]
    assert problem.qualities(chosen, torch.tensor(extra)).tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("own_kernels", "sizes", "seed"),
    [(False, [4, 3, 4], 0), (True, [4, 3, 4], 1), (False, [3, 3, 3, 3], 2), (True, [3, 3, 3, 3], 0)],
    ids=str,
)
def test_ascent_with_restarts_finds_the_best_of_all_sets(own_kernels: bool, sizes: list[int], seed: int):
    problem, classes, members = random_problem(sizes, 8, seed, own_kernels)
    found = ascent(problem, members, 30, torch.Generator().manual_seed(seed))
    assert [classes[v] for v in found] == list(range(len(sizes)))
    assert problem.quality(found) == pytest.approx(problem.quality(best_of_all(problem, members)), abs=1e-8)


def test_ascent_ends_where_no_single_exchange_helps_and_restarts_get_further():
    stuck = 0
    for seed in range(8):
        problem, _, members = random_problem([4, 4, 4], 3, seed)
        found = ascent(problem, members, 0, torch.Generator())
        alone = problem.quality(found)
        for c, part in enumerate(members):
            assert max(problem.quality([*found[:c], v, *found[c + 1 :]]) for v in part.tolist()) <= alone + 1e-8
        again = problem.quality(ascent(problem, members, 30, torch.Generator().manual_seed(seed)))
        assert alone <= again + 1e-9
        stuck += alone < again - 1e-6
    assert stuck > 0, "some of these cases need a restart"


def test_more_sets_than_can_be_tried_are_searched_by_ascent(monkeypatch: pytest.MonkeyPatch):
    for seed in range(8):
        problem, _, members = random_problem([4, 4, 4], 3, seed)
        best = choose_one_each(problem, members, 0, torch.Generator())
        assert best == best_of_all(problem, members)
        found = ascent(problem, members, 0, torch.Generator())
        if found != best:
            monkeypatch.setattr(ridge, "EXHAUSTIVE", 63)
            assert choose_one_each(problem, members, 0, torch.Generator()) == found
            return
    raise AssertionError("in none of these cases is the ascent from one start another than the best of all")


# --- the selectors ---------------------------------------------------------------------------------------


def in_order(context: SelectionContext, selector: SmoothedRidge | LinearizedRidge) -> tuple[RidgeProblem, list[int]]:
    """The problem of all candidates in the task's order, and the classes of its nodes."""
    problem = selector.problem(context, context.nodes)
    nodes = torch.cat([context.nodes, context.task.val])
    assert problem.targets.numel() == nodes.numel(), "targets are train and val nodes"
    return problem, context.task.targets(nodes).tolist()


def greedy(
    context: SelectionContext, problem: RidgeProblem, classes: list[int], e: int
) -> tuple[list[list[int]], list]:
    """The best set of one node per class, then one node for each class in turn, with the increase of each."""
    count = len(context.task.classes)
    members = [[v for v in range(context.nodes.numel()) if classes[v] == c] for c in range(count)]
    value = lambda chosen: written_out(problem, classes, chosen)  # noqa: E731
    first = list(max(product(*members), key=lambda chosen: value(list(chosen))))
    rows = [[v] for v in first]
    gains = [[value(first) - value(first[:c] + first[c + 1 :])] for c in range(count)]
    chosen = list(first)
    for _ in range(e - 1):
        for c in range(count):
            best = max((v for v in members[c] if v not in chosen), key=lambda v: value([*chosen, v]))
            gains[c].append(value([*chosen, best]) - value(chosen))
            chosen.append(best)
            rows[c].append(best)
    return rows, gains


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("e", [1, 3])
def test_two_classes_equal_brute_force(kind: type, sparse: bool, e: int):
    selector, context = kind(), example_context(sparse=sparse, per_class=e)
    problem, classes = in_order(context, selector)
    rows, gains = greedy(context, problem, classes, e)
    chosen = selector.select(context)
    assert chosen.nodes.tolist() == context.nodes[torch.tensor(rows).flatten()].tolist()
    assert chosen.scores.tolist() == pytest.approx(torch.tensor(gains).flatten().tolist(), abs=1e-5)
    total = [v for turn in zip(*rows, strict=True) for v in turn]
    assert chosen.info["quality"] == pytest.approx(written_out(problem, classes, total), abs=1e-6)
    assert chosen.info["candidates"] == 12
    assert chosen.info["targets"] == 20


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("head", ["shared", "growing"])
def test_three_classes_equal_brute_force(kind: type, head: str):
    selector, context = kind(), example_context(classes_per_task=3, head=head)
    problem, classes = in_order(context, selector)
    assert problem.kernel.size(0) == (1 if kind is SmoothedRidge else 3)
    members = [[v for v in range(context.nodes.numel()) if classes[v] == c] for c in range(3)]
    best = max(problem.quality(list(chosen)) for chosen in product(*members))
    chosen = selector.select(context)
    place = {node: i for i, node in enumerate(context.nodes.tolist())}
    assert chosen.info["quality"] == pytest.approx(best, abs=1e-8)
    assert problem.quality([place[v] for v in chosen.nodes.tolist()]) == pytest.approx(best, abs=1e-8)


class Watched(SmoothedRidge):
    seen: list[tuple[int, int]]

    def kernel(self, context: SelectionContext, candidates: Tensor, others: Tensor) -> Tensor:
        self.seen = [*getattr(self, "seen", []), (candidates.numel(), others.numel())]
        return super().kernel(context, candidates, others)


def test_pool_and_targets_limit_the_kernel():
    context = example_context()
    selector = Watched(pool=2, targets=7)
    chosen = {tuple(selector.select(replace(context, seed=seed)).nodes.tolist()) for seed in range(6)}
    assert len(chosen) > 1, "the pool is drawn by seed"
    assert all(candidates == 4 and others <= 7 for candidates, others in selector.seen)
    assert selector.select(context).info["targets"] == 7
    assert selector.select(replace(context, per_class=5)).nodes.numel() == 10, "e nodes are in the pool at least"


@pytest.mark.parametrize("kind", BOTH)
def test_without_validation_nodes_training_nodes_are_the_targets(kind: type):
    context = example_context()
    context = replace(context, task=replace(context.task, val=context.task.val[:0]))
    assert kind().select(context).info["targets"] == 12


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("head", ["per-task", "growing"])
def test_a_task_with_one_class(kind: type, head: str):
    selector, context = kind(), example_context(classes_per_task=1, head=head)
    problem, classes = in_order(context, selector)
    values = [written_out(problem, classes, [v]) for v in range(context.nodes.numel())]
    assert selector.select(context).nodes.tolist() == [int(context.nodes[values.index(max(values))])]
