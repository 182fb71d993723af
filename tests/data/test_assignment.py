"""Streams in which classes come again: blurred, by domain and by time; the data sets made for them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from ergnn.config.errors import InputError
from ergnn.data import DATASETS, make_stream, splits
from ergnn.data.datasets.parts import reduced
from ergnn.data.graph import join_graphs
from ergnn.data.scenarios import ANYTIME, SPREAD, blurred_stream, class_shares
from ergnn.data.splits import Sizes, parse_sizes
from graphs import random_graph


def test_class_shares_are_the_formula() -> None:
    shares = class_shares(7, 3)
    for r in range(7):
        center = (r + 0.5) * 3 / 7 - 0.5
        bell = [np.exp(-((t - center) ** 2) / (2 * SPREAD**2)) for t in range(3)]
        wanted = [(1 - ANYTIME) * value / sum(bell) + ANYTIME / 3 for value in bell]
        np.testing.assert_allclose(shares[r].numpy(), wanted)
    assert torch.equal(shares.argmax(1), torch.tensor([0, 0, 1, 1, 1, 2, 2]))


def test_every_node_of_a_blurred_stream_is_in_one_task_and_shares_are_as_drawn() -> None:
    graph = random_graph(n=3000, f=2, classes=6, p_edge=0.0, unlabeled=60)
    split = splits.fractions(graph.y, train=0.6, val=0.2, test=0.2)
    order = [5, 3, 1, 0, 2, 4]
    stream = blurred_stream(graph, split=split, class_order=order, seed=3)
    assert len(stream) == 3
    for part in ("train", "val", "test"):
        nodes = torch.cat([getattr(task, part) for task in stream])
        assert torch.equal(nodes.sort().values, getattr(split, part).sort().values)
    shares = class_shares(6, 3)
    for place, c in enumerate(order):
        found = np.array([int((graph.y[task.train] == c).sum()) for task in stream])
        assert chisquare(found, shares[place].numpy() * found.sum()).pvalue > 0.001
    again = blurred_stream(graph, split=split, class_order=order, seed=3)
    other = blurred_stream(graph, split=split, class_order=order, seed=4)
    assert torch.equal(stream[0].train, again[0].train)
    assert not torch.equal(stream[0].train, other[0].train)


def test_test_nodes_follow_the_training_nodes_of_their_class() -> None:
    stream = make_stream("cora", scenario="blurred", split="20/30/rest", class_order="shuffled", order_seed=2).stream
    for task in stream:
        classes = set(task.graph.y[task.train].tolist())
        assert classes == set(task.classes)
        assert set(task.graph.y[task.test].tolist()) <= classes
    counts = [sum(c in task.classes for task in stream) for c in range(7)]
    assert max(counts) > 1, "classes come again"
    assert sum(task.train.numel() for task in stream) == 7 * 20


@pytest.mark.parametrize("sparse", [False, True])
def test_graphs_are_joined(sparse: bool) -> None:
    a, b = random_graph(n=20, seed=0, sparse=sparse), random_graph(n=30, seed=1, unlabeled=2, sparse=sparse)
    joined = join_graphs([a, b])
    assert joined.is_sparse == sparse
    assert torch.equal(joined.dense_x(), torch.cat([a.dense_x(), b.dense_x()]))
    assert torch.equal(joined.edge_index, torch.cat([a.edge_index, b.edge_index + 20], dim=1))
    assert torch.equal(joined.y, torch.cat([a.y, b.y]))


def test_reduced_features_have_the_products_of_a_truncated_svd() -> None:
    x = torch.randn(60, 20, generator=torch.Generator().manual_seed(0)) @ torch.diag(0.3 ** torch.arange(20.0))
    u, s, _ = np.linalg.svd(x.numpy())
    wanted = (u[:, :5] * s[:5]) @ (u[:, :5] * s[:5]).T
    state = torch.random.get_rng_state()
    found = reduced(x, 5)
    assert torch.equal(state, torch.random.get_rng_state())
    np.testing.assert_allclose((found @ found.T).numpy(), wanted, atol=1e-3)
    assert torch.equal(found, reduced(x, 5))
    wide = reduced(x, 32)
    assert wide.shape == (60, 32)
    np.testing.assert_allclose((wide @ wide.T).numpy(), (x @ x.T).numpy(), atol=1e-3)
    assert not wide[:, 20:].any()


def test_sizes_are_fractions_or_nodes_per_class() -> None:
    assert parse_sizes("0.6/0.2/0.2") == Sizes(0.6, 0.2, 0.2)
    assert parse_sizes("20/30/rest") == Sizes(20, 30, None)
    assert parse_sizes("seeded") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.6/0.2", "split is '0.6/0.2'; use train/val/test: fractions such as 0.6/0.2/0.2, or nodes per class"),
        ("0.6/0.2/rest", "split is '0.6/0.2/rest'; use train/val/test"),
        ("0/30/rest", "train is 0; it must be 1 or more"),
        ("0.9/0.2/0.2", "add up to 1.3; at most 1 is allowed"),
    ],
)
def test_wrong_sizes_are_named(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_sizes(text)


def test_splits_by_size_on_a_graph() -> None:
    stream, used, _ = make_stream("citeseer", split="30/10/20")
    assert used == "30/10/20"
    for task in stream:
        assert [int((task.graph.y[task.train] == c).sum()) for c in task.classes] == [30, 30]
        assert task.test.numel() == 40


def test_twitch_is_six_graphs_with_the_same_classes(data_root: Path) -> None:
    stream, split, _ = make_stream("twitch", root=data_root, class_order=[5, 4, 3, 2, 1, 0])
    assert split == "seeded"
    assert [task.classes for task in stream] == [(0, 1)] * 6
    parts = DATASETS.create("twitch").parts()
    for i, task in enumerate(stream):
        nodes = torch.cat([task.train, task.val, task.test])
        assert set(parts[nodes].tolist()) == {5 - i}
        assert nodes.numel() == int((parts == 5 - i).sum())
    edges = parts[stream[0].graph.edge_index]
    assert torch.equal(edges[0], edges[1]), "there are no edges between languages"


def test_pubmed_years_are_periods_in_order(data_root: Path) -> None:
    with np.load(data_root / "pubmed_temporal" / "pubmed_temporal.npz") as file:
        year = torch.from_numpy(file["node_time"].astype(np.int64))
    stream = make_stream("pubmed-years", root=data_root, edges="seen", dataset_options={"tasks": 4}).stream
    last = -1
    for task in stream:
        years = year[torch.cat([task.train, task.val, task.test])]
        assert int(years.min()) > last
        last = int(years.max())
        assert int(year[task.graph.edge_index].max()) == last, "later papers have no edges yet"
    assert [task.classes for task in stream] == [(0, 1, 2)] * 4
    with pytest.raises(
        InputError, match="class_order is 'shuffled'; the tasks of pubmed-years are in the order of time"
    ):
        make_stream("pubmed-years", root=data_root, class_order="shuffled")
    with pytest.raises(InputError, match="unknown edges 'some'"):
        make_stream("pubmed-years", root=data_root, edges="some")
    with pytest.raises(InputError, match="tasks is 0; it must be 1 or more"):
        DATASETS.create("pubmed-years", tasks=0)


@pytest.mark.slow
def test_citation_domains_have_distinct_classes_and_a_common_width(data_root: Path) -> None:
    stream = make_stream("citation-domains", root=data_root, class_order="shuffled", order_seed=1).stream
    assert [len(task.classes) for task in stream] == [3, 15, 4, 6]
    assert len(set(stream.classes)) == 28
    assert stream.num_features == 512
