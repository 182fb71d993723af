"""The experience buffer: contents, size, and stored neighborhoods."""

import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from ergnn.config.errors import InputError
from ergnn.data import Graph, TaskStream
from ergnn.nn.backbones import BACKBONES
from ergnn.replay.buffer import Experience, ExperienceBuffer
from graphs import random_graph

REPLAYS = ("live", "isolated", "ego")


def scores_of(name: str, graph: Graph, seed: int = 0) -> torch.Tensor:
    """PyG's own forward on the whole graph, in float64."""
    torch.manual_seed(seed)
    model = BACKBONES.create(name, in_channels=graph.num_features, out_channels=3).double().eval()
    with torch.no_grad():
        return model(graph.dense_x().double(), graph.edge_index)


def fill(graph: Graph, e: int, replay: str, hops: int = 2) -> tuple[ExperienceBuffer, list[list[int]]]:
    """The first e training nodes of every class of every task."""
    buffer, added = ExperienceBuffer(replay, hops), []
    for task in TaskStream.from_classes(graph):
        nodes = torch.cat([task.train[graph.y[task.train] == c][:e] for c in task.classes])
        buffer.add(task.graph, task.id, nodes, torch.arange(nodes.numel()).float())
        added.append(nodes.tolist())
    return buffer, added


buffers = given(
    st.integers(2, 6),
    st.integers(1, 2),
    st.sampled_from(REPLAYS),
    st.booleans(),
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.1, 0.4]),
)


@pytest.mark.parametrize("replay", REPLAYS)
def test_stored_nodes_alone_have_the_same_scores_as_in_the_graph(replay: str) -> None:
    graph = random_graph(n=24, f=3, classes=4, p_edge=0.2, seed=3)
    buffer, _ = fill(graph, 2, replay)
    joined, ids = buffer.attach(graph)
    alone, own = buffer.alone(graph)
    assert alone.num_nodes < joined.num_nodes or replay == "live"
    scores = scores_of("gcn", alone)[own]
    torch.testing.assert_close(scores, scores_of("gcn", joined)[torch.cat(ids)])
    assert scores.unique(dim=0).size(0) == len(buffer), "the nodes differ"


@buffers
@settings(max_examples=40, deadline=None)
def test_attaching_nodes_preserves_features_and_labels(classes, e, replay, sparse, seed, p_edge):
    graph = random_graph(n=6 * classes, f=3, classes=classes, seed=seed, p_edge=p_edge, sparse=sparse)
    buffer, added = fill(graph, e, replay)
    attached, ids = buffer.attach(graph)
    n, m = graph.num_nodes, graph.num_edges
    assert torch.equal(attached.dense_x()[:n], graph.dense_x())
    assert torch.equal(attached.edge_index[:, :m], graph.edge_index)
    assert bool((attached.edge_index[:, m:] >= n).all()), "copies touch no node of the graph itself"
    for nodes, where in zip(added, ids, strict=True):
        assert torch.equal(attached.dense_x()[where], graph.dense_x()[nodes])
        assert torch.equal(attached.y[where], graph.y[nodes])
    attached.validate()
    if replay == "live":
        assert attached is graph
        assert [where.tolist() for where in ids] == added
    if replay == "isolated":
        assert attached.num_edges == m
        assert attached.num_nodes == n + len(buffer)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("replay", "hops"), [("live", 2), ("isolated", 2), ("ego", 1), ("ego", 2)])
def test_state_dict_round_trip_with_weights_only(replay: str, hops: int, sparse: bool):
    graph = random_graph(n=24, f=4, classes=4, sparse=sparse)
    buffer, _ = fill(graph, 2, replay, hops)
    file = io.BytesIO()
    torch.save(buffer.state_dict(), file)
    file.seek(0)
    again = ExperienceBuffer()
    again.load_state_dict(torch.load(file, weights_only=True))
    assert (again.replay, again.hops, again.nbytes) == (replay, hops, buffer.nbytes)
    for old, new in zip(buffer.experiences, again.experiences, strict=True):
        assert old.task == new.task
        for key in ("nodes", "labels", "scores"):
            assert torch.equal(getattr(old, key), getattr(new, key))
    (a, a_ids), (b, b_ids) = buffer.attach(graph), again.attach(graph)
    assert torch.equal(a.dense_x(), b.dense_x())
    assert torch.equal(a.edge_index, b.edge_index)
    assert torch.equal(torch.cat(a_ids), torch.cat(b_ids))
    assert b.is_sparse == sparse


def test_bytes_are_counted_by_hand():
    x = torch.eye(4)
    graph = Graph(x, torch.tensor([[1, 2, 3], [0, 1, 2]]), torch.tensor([0, 1, 0, 1]))  # 3 → 2 → 1 → 0
    sizes = {}
    for replay in REPLAYS:
        buffer = ExperienceBuffer(replay, hops=2)
        buffer.add(graph, 0, torch.tensor([0]), torch.zeros(1))
        sizes[replay] = buffer.nbytes
    ids = 2 * 8  # a node id and a label
    assert sizes == {"live": ids, "isolated": ids + 4 * 4, "ego": ids + 3 * 4 * 4 + 2 * 2 * 8}


def test_an_ego_graph_follows_edges_into_the_node_only():
    graph = Graph(torch.eye(4), torch.tensor([[1, 2, 0], [0, 1, 3]]), torch.tensor([0, 1, 0, 1]))
    buffer = ExperienceBuffer("ego", hops=1)
    buffer.add(graph, 0, torch.tensor([0]), torch.zeros(1))
    assert buffer.experiences[0].copy.x.argmax(1).tolist() == [0, 1]


EXACT = {"gat": 2, "sage": 2, "gin": 2, "gcn": 3, "sgc": 3, "mlp": 1}
"""Hops at which a copy scores as the original: two layers; one more where coefficients have neighbors' degrees."""


@pytest.mark.parametrize("name", sorted(EXACT))
@given(st.integers(0, 1000), st.booleans(), st.booleans())
@settings(max_examples=8, deadline=None)
def test_a_stored_neighborhood_gives_the_same_scores_as_the_graph(name: str, seed: int, sparse: bool, loops: bool):
    graph = random_graph(n=30, f=3, classes=4, seed=seed, p_edge=0.06, sparse=sparse, self_loops=loops)
    buffer, added = fill(graph, 2, "ego", EXACT[name])
    attached, ids = buffer.attach(graph)
    live = scores_of(name, graph)
    copied = scores_of(name, attached)
    for nodes, where in zip(added, ids, strict=True):
        torch.testing.assert_close(copied[where], live[nodes], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["gat", "gcn", "sage", "gin", "sgc"])
def test_one_hop_fewer_is_not_enough(name: str):
    """On a path 0 – 1 – 2 – 3 – 4 the two layers at node 0 read node 2, and degrees up to there."""
    path = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    graph = Graph(torch.rand(5, 3), torch.cat([path, path.flip(0)], 1), torch.tensor([0, 1, 0, 1, 0]))
    buffer = ExperienceBuffer("ego", EXACT[name] - 1)
    buffer.add(graph, 0, torch.tensor([0]), torch.zeros(1))
    attached, (where,) = buffer.attach(graph)
    assert not torch.allclose(scores_of(name, attached)[where], scores_of(name, graph)[:1], rtol=1e-6)


@pytest.mark.parametrize("nodes", [[5, 5], [3, 1]], ids=["twice at once", "from an earlier task"])
def test_a_node_is_not_stored_twice(nodes: list[int]):
    graph, buffer = random_graph(), ExperienceBuffer()
    buffer.add(graph, 0, torch.tensor([1, 2]), torch.zeros(2))
    with pytest.raises(InputError, match=rf"node {nodes[1]} is already in the buffer"):
        buffer.add(graph, 1, torch.tensor(nodes), torch.zeros(2))


def test_every_arrival_is_equally_likely_to_stay():
    """A chi-square test of the arrivals that 60 reservoirs of 5 keep out of 20: all have the same probability."""
    graph = random_graph(n=1200, f=2, classes=1, p_edge=0.0)
    kept = torch.zeros(20)
    for start in range(0, 1200, 20):
        buffer = ExperienceBuffer()
        for task in range(20):
            buffer.add(graph, task, torch.tensor([start + task]), torch.zeros(1))
            buffer.trim(budget_nodes=5)
        kept[[part.task for part in buffer.experiences]] += 1
    assert kept.sum() == 300
    assert chisquare(kept.numpy()).pvalue > 0.01


def test_many_evictions_touch_each_experience_once(monkeypatch: pytest.MonkeyPatch):
    graph = random_graph(n=400, f=2, classes=4, p_edge=0.0)
    buffer = ExperienceBuffer()
    for task in range(2):
        buffer.add(graph, task, torch.arange(200) + 200 * task, torch.zeros(200))
    kept, keep = [], Experience.keep
    monkeypatch.setattr(Experience, "keep", lambda self, index, hops: kept.append(self.task) or keep(self, index, hops))
    assert buffer.trim(budget_nodes=300) == 100
    assert sorted(kept) == [0, 1]


def test_extras_and_ids_stay_with_their_nodes():
    graph, buffer = random_graph(n=40, classes=4), ExperienceBuffer()
    buffer.add(graph, 0, torch.tensor([5, 6, 7]), torch.zeros(3), {"value": torch.tensor([5.0, 6.0, 7.0])})
    buffer.remove(torch.tensor([6]))
    buffer.remap(lambda nodes: nodes + 10)
    other = ExperienceBuffer()
    other.load_state_dict(buffer.state_dict())
    assert other.nodes.tolist() == [15, 17]
    assert other.experiences[0].extras["value"].tolist() == [5.0, 7.0]
