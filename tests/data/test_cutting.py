import numpy as np
import pytest
import scipy.sparse
import torch

from ergnn.config.errors import InputError
from ergnn.data import UNLABELED
from ergnn.data.tables import EdgeTable, NodeTable, cut, from_graph, to_graph
from graphs import random_graph


def tables(n: int = 60, sparse: bool = False, seed: int = 0, first: int = 0) -> tuple[NodeTable, EdgeTable]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 4)).clip(0)
    nodes = NodeTable(
        ids=[f"n{first + i}" for i in range(n)],
        labels=[None if i % 10 == 9 else ("c", "a", "b")[i % 3] for i in range(n)],
        time=rng.permutation(n),
        domain=[("north", "south")[int(rng.random() < 0.5)] for _ in range(n)],
        features=scipy.sparse.csr_matrix(features) if sparse else features,
    )
    ends = rng.integers(0, n, (2, 3 * n))
    return nodes, EdgeTable(source=nodes.ids[ends[0]], target=nodes.ids[ends[1]])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("undirected", [False, True])
def test_a_graph_is_the_tables(sparse: bool, undirected: bool) -> None:
    nodes, edges = tables(sparse=sparse)
    graph, ids, names = to_graph(nodes, edges, undirected=undirected)
    assert ids.tolist() == nodes.ids.tolist()
    assert names == ("a", "b", "c") == graph.class_names
    assert [None if c == UNLABELED else names[c] for c in graph.y.tolist()] == nodes.labels.tolist()
    assert graph.is_sparse == sparse
    dense = nodes.features.toarray() if sparse else nodes.features
    np.testing.assert_array_equal(graph.dense_x().numpy(), dense)
    wanted = set(zip(edges.source, edges.target, strict=True))
    wanted |= {(b, a) for a, b in wanted} if undirected else set()
    wanted = {(a, b) for a, b in wanted if a != b}
    found = [(ids[u], ids[v]) for u, v in graph.edge_index.T.tolist()]
    assert len(found) == len(set(found))
    assert set(found) == wanted


@pytest.mark.parametrize("undirected", [False, True])
def test_weights_become_those_of_the_graph(undirected: bool) -> None:
    nodes, edges = tables()
    weights = np.random.default_rng(1).random(len(edges)).astype(np.float32)
    graph, ids, _ = to_graph(nodes, EdgeTable(edges.source, edges.target, weights), undirected=undirected)
    wanted: dict[tuple[str, str], float] = {}  # of duplicates, the largest weight
    for a, b, w in zip(edges.source, edges.target, weights.tolist(), strict=True):
        for pair in [(a, b), (b, a)] if undirected else [(a, b)]:
            wanted[pair] = max(wanted.get(pair, 0), w)
    found = zip(graph.edge_index.T.tolist(), graph.edge_weight.tolist(), strict=True)
    assert {(ids[u], ids[v]): w for (u, v), w in found} == {(a, b): w for (a, b), w in wanted.items() if a != b}
    again = to_graph(*from_graph(graph), undirected=False).graph
    assert torch.equal(again.edge_index, graph.edge_index)
    assert again.edge_weight is not None
    assert torch.equal(again.edge_weight, graph.edge_weight)
    with pytest.raises(InputError, match=r"an edge has weight -1; weights must be finite, 0 or more"):
        to_graph(nodes, EdgeTable(edges.source, edges.target, -np.ones(len(edges))))
    with pytest.raises(InputError, match=r"weight has shape \[3\]; \[180\] is required"):
        EdgeTable(edges.source, edges.target, np.ones(3))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_graph_becomes_tables_and_again_a_graph(sparse: bool) -> None:
    graph = random_graph(sparse=sparse, unlabeled=3)
    nodes, edges = from_graph(graph)
    again = to_graph(nodes, edges).graph
    assert torch.equal(again.dense_x(), graph.dense_x())
    assert torch.equal(again.edge_index, graph.edge_index)
    assert torch.equal(again.y, graph.y)
    assert torch.equal(again.public_split.test, graph.public_split.test)


def test_a_graph_says_what_does_not_fit() -> None:
    nodes = NodeTable(ids=["a", "b"], labels=["x", None])
    with pytest.raises(InputError, match="edge 2 names target 'q', which is no node; there are 2, the first is 'a'"):
        to_graph(nodes, EdgeTable(source=["a", "b"], target=["b", "q"]))
    with pytest.raises(InputError, match="node 'a' has label 'x'; classes are 'y', 'z'"):
        to_graph(nodes, None, classes=["y", "z"])
    with pytest.raises(InputError, match="class 'x' is named twice"):
        to_graph(nodes, None, classes=["x", "x"])
    assert to_graph(nodes, None, classes=["w", "x"]).graph.y.tolist() == [1, UNLABELED]
    numbers = NodeTable(ids=[1, 2, 3], labels=["10", "9", "2"])
    assert to_graph(numbers, None).class_names == ("2", "9", "10")


def test_a_split_column_is_the_graphs_split() -> None:
    nodes = NodeTable(
        ids=range(6), labels=["x", "x", None, "y", "y", "x"], split=["train", "val", "train", "test", None, "test"]
    )
    split = to_graph(nodes, None).graph.public_split
    assert (split.train.tolist(), split.val.tolist(), split.test.tolist()) == ([0], [1], [3, 5])


def test_by_class() -> None:
    nodes, edges = tables()
    stream = cut(nodes, edges, by="class", classes_per_task=1, order=["b", "c", "a"])
    assert [task.classes for task in stream] == [(1,), (2,), (0,)]
    names = stream[0].graph.class_names
    for task in stream:
        mine = torch.cat([task.train, task.val, task.test]).sort().values.tolist()
        assert mine == [i for i, label in enumerate(nodes.labels) if label == names[task.classes[0]]]
    with pytest.raises(InputError, match="it must name every class once"):
        cut(nodes, edges, order=["a", "b"])


@pytest.mark.parametrize("view", ["seen", "all", "own"])
def test_by_time(view: str) -> None:
    nodes, edges = tables()
    stream = cut(nodes, edges, by="time", num_tasks=3, inter_task_edges=view)
    home = nodes.time // 20  # times are a permutation of 0 to 59
    whole = to_graph(nodes, edges).graph.edge_index.T.tolist()
    for task in stream:
        assert task.classes == (0, 1, 2)
        assert not task.own_graph
        mine = torch.cat([task.train, task.val, task.test]).sort().values.tolist()
        assert mine == [i for i in range(60) if home[i] == task.id and nodes.labels[i] is not None]
        visible = {
            "all": lambda u, v, i: True,
            "seen": lambda u, v, i: max(home[u], home[v]) <= i,
            "own": lambda u, v, i: home[u] == home[v],
        }[view]
        assert task.graph.edge_index.T.tolist() == [[u, v] for u, v in whole if visible(u, v, task.id)]


def test_by_time_at_boundaries_and_dates() -> None:
    nodes, edges = tables(120)
    stream = cut(nodes, edges, by="time", boundaries=[30, 95])
    counts = [int(t.train.numel() + t.val.numel() + t.test.numel()) for t in stream]
    labeled = [t for t, label in zip(nodes.time, nodes.labels, strict=True) if label is not None]
    assert counts == [sum(t < 30 for t in labeled), sum(30 <= t < 95 for t in labeled), sum(t >= 95 for t in labeled)]
    dated = NodeTable(ids=nodes.ids, labels=nodes.labels, time=nodes.time * 86400.0)
    again = cut(dated, edges, by="time", boundaries=["1970-01-31", "1970-04-06T00:00Z"])
    for a, b in zip(stream, again, strict=True):
        assert a.train.tolist() == b.train.tolist()


def test_nodes_without_a_time_are_context() -> None:
    nodes, edges = tables()
    time = nodes.time.astype(float)
    time[:10] = np.nan
    stream = cut(NodeTable(ids=nodes.ids, labels=nodes.labels, time=time), edges, by="time", num_tasks=2)
    for task in stream:
        assert (task.graph.y[:10] == UNLABELED).all()
        assert torch.cat([task.train, task.val, task.test]).min() >= 10
    first = stream[0].graph.edge_index
    assert (first < 10).any()
    assert not (torch.tensor(time)[first.flatten()] > np.nanmedian(time) + 1).any()


def test_by_domain_with_given_splits() -> None:
    nodes, edges = tables()
    split = np.array(["train", "val", "test", None], dtype=object)[np.arange(60) % 4]
    given = NodeTable(ids=nodes.ids, labels=nodes.labels, domain=nodes.domain, split=split, features=nodes.features)
    stream = cut(given, edges, by="domain", order=["south", "north"])
    for task, domain in zip(stream, ("south", "north"), strict=True):
        for part in ("train", "val", "test"):
            mine = getattr(task, part).tolist()
            assert mine == [
                i for i in range(60) if nodes.domain[i] == domain and split[i] == part and nodes.labels[i] is not None
            ]
    assert len(cut(given, edges, by="domain", num_tasks=1)) == 1


def test_a_class_that_cannot_be_trained_in_a_part_is_hidden_there() -> None:
    nodes = NodeTable(ids=range(21), labels=["a"] * 10 + ["b"] + ["b"] * 10, domain=["x"] * 11 + ["y"] * 10)
    stream = cut(nodes, None, by="domain")
    assert [task.classes for task in stream] == [(0,), (1,)]
    assert stream[0].graph.y[10] == UNLABELED


def test_what_cannot_be_cut() -> None:
    nodes, edges = tables()
    bare = NodeTable(ids=nodes.ids, labels=nodes.labels)
    with pytest.raises(InputError, match="choose one of: class, domain, time"):
        cut(nodes, edges, by="size")
    with pytest.raises(InputError, match="by is 'time', but the nodes have no column 'time'"):
        cut(bare, edges, by="time", num_tasks=2)
    with pytest.raises(InputError, match="by is 'domain', but the nodes have no column 'domain'"):
        cut(bare, edges, by="domain")
    with pytest.raises(InputError, match="give num_tasks or boundaries, and not both"):
        cut(nodes, edges, by="time")
    with pytest.raises(InputError, match="boundaries go with by='time'; by is 'domain'"):
        cut(nodes, edges, by="domain", boundaries=[1])
    with pytest.raises(InputError, match="one or more that rise are needed"):
        cut(nodes, edges, by="time", boundaries=[5, 5])
    with pytest.raises(InputError, match=r"boundaries, .*'May' is neither a number nor a date"):
        cut(nodes, edges, by="time", boundaries=["May"])
    with pytest.raises(InputError, match="too many nodes have the same time"):
        cut(NodeTable(ids=nodes.ids, labels=nodes.labels, time=np.ones(60)), edges, by="time", num_tasks=2)
    with pytest.raises(InputError, match="task 1 has 3 nodes, 3 with a label; no class has enough of them"):
        cut(NodeTable(ids=nodes.ids, labels=["a"] * 60, time=np.arange(60)), edges, by="time", boundaries=[3])
    with pytest.raises(InputError, match="domains: num_tasks is 9; it must be 1 to 2"):
        cut(nodes, edges, by="domain", num_tasks=9)
    with pytest.raises(InputError, match="unknown edges 'some'"):
        cut(nodes, edges, inter_task_edges="some")
