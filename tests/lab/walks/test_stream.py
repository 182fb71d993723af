"""Streams of walk vectors: visible nodes, continued training, and a classifier on the vectors."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ergnn.config.errors import InputError, UnknownNameError
from ergnn.data import Graph, TaskStream, splits
from ergnn.lab.config import RunConfig
from ergnn.lab.run import run
from ergnn.lab.walks import visible_nodes, walk_settings, walk_stream
from graphs import graphs

SMALL = {"walks": 4, "length": 10, "dim": 16, "window": 3}


def blocks(classes: int = 5, size: int = 24, seed: int = 0) -> Graph:
    """Classes are dense blocks with few edges between; features say nothing, two nodes have no edge."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(classes).repeat(size)
    linked = torch.rand(y.numel(), y.numel(), generator=generator) < torch.where(y[:, None] == y, 0.3, 0.004)
    linked = linked.triu(1)
    linked[:, -2:] = False
    x = torch.ones(y.numel(), 3)
    return Graph(x, (linked | linked.T).nonzero().T.contiguous(), y, name="blocks")


def stream_of(edges: str = "own", graph: Graph | None = None, tasks: int = 2) -> TaskStream:
    graph = blocks() if graph is None else graph
    split = splits.per_class(graph.y, train=6, val=4, seed=0)
    return TaskStream.from_classes(graph, num_tasks=tasks, split=split, edges=edges)


@given(graph=graphs(), edges=st.sampled_from(["own", "seen", "all"]))
@settings(max_examples=30, deadline=None)
def test_visible_is_what_a_search_along_edges_finds(graph: Graph, edges: str) -> None:
    stream = TaskStream.from_classes(graph, classes_per_task=1, edges=edges)
    for i, task in enumerate(stream):
        classes = list(stream.classes[: i + 1])
        found = {v for v in range(graph.num_nodes) if int(task.graph.y[v]) in classes}
        own = set(found)
        neighbors: dict[int, set[int]] = {}
        for s, t in task.graph.edge_index.T.tolist():
            neighbors.setdefault(s, set()).add(t)
            neighbors.setdefault(t, set()).add(s)
        frontier = set(found)
        while frontier:
            frontier = {u for v in frontier for u in neighbors.get(v, ())} - found
            found |= frontier
        assert set(visible_nodes(task.graph, classes).tolist()) == found
        if edges == "own":
            assert found == own


@pytest.mark.parametrize(("kind", "edges"), [("deepwalk", "own"), ("node2vec", "seen"), ("deepwalk", "all")])
def test_exactly_the_visible_nodes_have_vectors(kind: str, edges: str) -> None:
    stream = stream_of(edges)
    walked = walk_stream(stream, kind, **SMALL)
    for i, (task, given_task) in enumerate(zip(walked, stream, strict=True)):
        known = torch.zeros(task.graph.num_nodes, dtype=torch.bool)
        known[visible_nodes(given_task.graph, list(stream.classes[: 2 * i + 2]))] = True
        assert bool(known[torch.cat([task.train, task.val, task.test])].all())
        assert torch.equal(task.graph.x.norm(dim=1) > 0, known)
        torch.testing.assert_close(task.graph.x[known].norm(dim=1), torch.ones(int(known.sum())))
        assert task.graph.x.shape == (task.graph.num_nodes, 16)
        for name in ("train", "val", "test", "classes"):
            assert getattr(task, name) is getattr(given_task, name)
        assert task.graph.edge_index is given_task.graph.edge_index
    if edges == "own":
        later = torch.cat([stream[1].train, stream[1].test])
        assert bool((walked[0].graph.x[later] == 0).all())


def test_vectors_depend_on_the_seed_and_not_on_features() -> None:
    stream = stream_of()
    first, again, other = (walk_stream(stream, seed=seed, **SMALL) for seed in (0, 0, 1))
    scrambled = TaskStream([replace(t, graph=replace(t.graph, x=torch.rand(t.graph.num_nodes, 7))) for t in stream])
    for i in range(2):
        assert torch.equal(first[i].graph.x, again[i].graph.x)
        assert torch.equal(first[i].graph.x, walk_stream(scrambled, seed=0, **SMALL)[i].graph.x)
        assert not torch.equal(first[i].graph.x, other[i].graph.x)


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        ("word2vec", {}, r"'word2vec' \(did you mean 'node2vec'\?\); choose one of: deepwalk, node2vec"),
        ("deepwalk", {"p": 2.0}, "deepwalk has no setting 'p'"),
        ("node2vec", {"steps": 3}, "node2vec has no setting 'steps'; its settings: dim"),
        ("node2vec", {"q": 0}, "q is 0"),
        ("deepwalk", {"walks": 0}, "walks is 0"),
        ("deepwalk", {"dim": 1.5}, "dim is 1.5"),
    ],
)
def test_bad_settings_are_named(kind: str, setting: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        walk_settings(kind, **setting)


def test_a_run_on_walks_uses_their_classifier_by_default() -> None:
    full = RunConfig(input="deepwalk", method="finetune", protocol="paper").resolved().learner
    assert (full.backbone, full.backbone_options, full.lr, full.weight_decay) == ("mlp", {"layers": 0}, 0.1, 5e-3)
    assert RunConfig(input="node2vec", lr=0.5, backbone_options={"layers": 1}).resolved().learner.lr == 0.5
    assert RunConfig(input="node2vec", backbone="gcn").resolved().learner.backbone == "gcn"
    plain = RunConfig(backbone="mlp", protocol="paper").resolved().learner
    assert (plain.backbone_options, plain.lr, plain.weight_decay) == ({}, 0.01, 5e-4)
    assert RunConfig().resolved().learner.backbone == "gat"
    with pytest.raises(UnknownNameError, match="unknown input 'words'"):
        RunConfig(input="words").resolved()
    with pytest.raises(InputError, match="input_options are options of random walks"):
        RunConfig(input_options={"walks": 2}).resolved()
    with pytest.raises(InputError, match="no setting 'walk'"):
        RunConfig(input="deepwalk", input_options={"walk": 2}).resolved()


def test_each_member_of_a_run_samples_its_own_walks() -> None:
    settings = {"walks": 3, "length": 15, "dim": 16, "window": 3}
    config = RunConfig(
        "cora", input="node2vec", input_options=settings, method="finetune", protocol="paper", seeds=2, epochs=60
    )
    result, again = run(config), run(replace(config, seeds=1, first_seed=1))
    assert result.config.input == "node2vec"
    assert result.to_dict()["paper"]["pm"] == 0.8599
    one, two = result.matrices
    assert one != two
    assert two == again.matrices[0]
    assert 0.6 < result.pm.mean <= 1.0
