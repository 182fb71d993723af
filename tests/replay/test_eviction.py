"""Trimming a buffer to a budget, against a search that rebuilds the buffer after every eviction."""

import zlib
from collections import Counter

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ergnn.data import Graph
from ergnn.replay.buffer import ExperienceBuffer, eviction_steps
from ergnn.testing.rules import same


@st.composite
def buffers(draw: st.DrawFn) -> ExperienceBuffer:
    """Buffers of several tasks, possibly with two experiences each.

    Graphs have directed edges, self-loops, repeated edges and rows without features.
    """
    replay = draw(st.sampled_from(["live", "isolated", "ego", "ego"]))
    buffer = ExperienceBuffer(replay, draw(st.integers(1, 3)))
    sparse, extras, twice = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    n, classes = draw(st.integers(6, 24)), draw(st.integers(1, 4))
    free = torch.randperm(n, generator=generator)
    for number in range(draw(st.integers(1, 4))):
        x = torch.randint(-2, 3, (n, 3), generator=generator).clamp(min=0).to(dtype)
        edges = torch.randint(0, n, (2, draw(st.sampled_from([0, n // 2, n, 2 * n]))), generator=generator)
        y = torch.randint(0, classes, (n,), generator=generator)
        graph = Graph(x.to_sparse_csr() if sparse else x, edges, y)
        pool = free if replay == "live" or twice else torch.randperm(n, generator=generator)
        nodes = pool[: draw(st.integers(0, 6))]
        free = free[nodes.numel() :]
        values = {"logits": torch.randn(nodes.numel(), 2, generator=generator)} if extras else {}
        buffer.add(graph, number // 2 if twice else number, nodes, torch.zeros(nodes.numel()), values)
    return buffer


def evict_one_by_one(buffer: ExperienceBuffer) -> list[tuple[int, int]]:
    """Task and node in the order of eviction, by looking at every stored node each time."""
    left = [
        (part.task, node, label, rank)
        for part in buffer.experiences
        for node, label, rank in zip(part.nodes.tolist(), part.labels.tolist(), part.ranks.tolist(), strict=True)
    ]
    out = []
    while left:
        of_class = Counter(label for _, _, label, _ in left)
        of_both = Counter((label, task) for task, _, label, _ in left)
        need = {
            one: (of_class[one[2]], of_both[one[2], one[0]], one[3], zlib.crc32(f"{one[1]},{one[0]}".encode()))
            for one in left
        }
        worst = max(left, key=lambda one: need[one])
        left.remove(worst)
        out.append(worst[:2])
    return out


@given(buffers())
@settings(max_examples=150, deadline=None)
def test_the_order_of_eviction_is_that_of_one_eviction_at_a_time(buffer: ExperienceBuffer) -> None:
    stored = [(part.task, node) for part in buffer.experiences for node in part.nodes.tolist()]
    listed = [stored[at] for at in eviction_steps(buffer.experiences).argsort()]
    assert listed == evict_one_by_one(buffer)


def rebuilt(buffer: ExperienceBuffer, evicted: int) -> ExperienceBuffer:
    """A copy of the buffer after some evictions; what is not touched is the same, and nothing is stored of no nodes."""
    out = ExperienceBuffer(buffer.replay, buffer.hops)
    steps = eviction_steps(buffer.experiences).split([len(part) for part in buffer.experiences])
    for part, own in zip(buffer.experiences, steps, strict=True):
        index = (own > evicted).nonzero().flatten()
        if index.numel():
            out.experiences.append(part if index.numel() == len(part) else part.keep(index, buffer._radius))
    return out


@given(buffers(), st.floats(0, 1), st.none() | st.integers(0, 24))
@settings(max_examples=150, deadline=None)
def test_trimming_evicts_as_few_nodes_as_needed(buffer: ExperienceBuffer, share: float, nodes: int | None) -> None:
    budget, total = int(share * buffer.nbytes), len(buffer)
    untouched = ExperienceBuffer(buffer.replay, buffer.hops, list(buffer.experiences))
    versions = [untouched, *(rebuilt(buffer, evicted) for evicted in range(total + 1))]
    expected = next(one for one in versions if one.nbytes <= budget and (nodes is None or len(one) <= nodes))
    assert buffer.trim(nodes, budget) == total - len(expected)
    assert same(buffer.state_dict(), expected.state_dict())


@given(buffers(), st.lists(st.integers(0, 23), max_size=8))
@settings(max_examples=80, deadline=None)
def test_removal_keeps_all_other_nodes(buffer: ExperienceBuffer, ids: list[int]) -> None:
    before = list(buffer.experiences)
    stay = [[at for at, node in enumerate(part.nodes.tolist()) if node not in ids] for part in before]
    assert buffer.remove(torch.tensor(ids, dtype=torch.long)) == sum(map(len, before)) - sum(map(len, stay))
    kept = [(part, index) for part, index in zip(before, stay, strict=True) if index]
    for part, (old, index) in zip(buffer.experiences, kept, strict=True):
        if len(index) == len(old):
            assert part is old
        else:
            kept_values = [part.nodes, part.labels, dict(part.extras)]
            extras = {key: value[index] for key, value in old.extras.items()}
            assert same(kept_values, [old.nodes[index], old.labels[index], extras])
