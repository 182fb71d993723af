from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ergnn.config.errors import InputError
from ergnn.data import UNLABELED, Graph, Split, Task, TaskStream
from graphs import graphs, random_graph

EDGES = st.sampled_from(["all", "seen", "own"])
LEFTOVER = st.sampled_from(["context", "last"])
SEEDS = st.integers(0, 2**31)


@st.composite
def streams(draw: st.DrawFn) -> tuple[Graph, TaskStream, dict]:
    """A graph, a stream of it with any options, and the options."""
    graph = draw(graphs())
    if draw(st.booleans()):
        graph = replace(graph, edge_weight=torch.arange(graph.num_edges).double())
    per_task = draw(st.integers(1, graph.num_classes))
    options = {
        "classes_per_task": per_task,
        "num_tasks": draw(st.none() | st.integers(1, graph.num_classes // per_task)),
        "class_order": draw(st.sampled_from(["natural", "shuffled"])),
        "order_seed": draw(SEEDS),
        "edges": draw(EDGES),
        "leftover": draw(LEFTOVER),
    }
    return graph, TaskStream.from_classes(graph, **options), options


def pairs(graph: Graph) -> list[tuple[int, int]]:
    return [(u, v) for u, v in graph.edge_index.T.tolist()]


@settings(max_examples=60, deadline=None)
@given(streams())
def test_tasks_partition_the_classes(drawn: tuple[Graph, TaskStream, dict]) -> None:
    graph, stream, options = drawn
    per_task = options["classes_per_task"]
    assert len(stream) == (options["num_tasks"] or graph.num_classes // per_task)
    full = len(stream) == graph.num_classes // per_task
    extra = graph.num_classes % per_task if options["leftover"] == "last" and full else 0
    assert [task.num_classes for task in stream] == [per_task] * (len(stream) - 1) + [per_task + extra]
    assert len(set(stream.classes)) == len(stream.classes) == len(stream) * per_task + extra
    assert set(stream.classes) <= set(range(graph.num_classes))
    assert [task.id for task in stream] == list(range(len(stream)))
    if options["class_order"] == "natural":
        assert stream.classes == tuple(range(len(stream.classes)))


@settings(max_examples=60, deadline=None)
@given(streams())
def test_a_task_has_all_split_nodes_of_its_classes_and_no_others(drawn: tuple[Graph, TaskStream, dict]) -> None:
    graph, stream, _ = drawn
    split = graph.public_split
    for task in stream:
        for mine, whole in ((task.train, split.train), (task.val, split.val), (task.test, split.test)):
            assert mine.tolist() == [v for v in whole.tolist() if int(graph.y[v]) in task.classes]


@settings(max_examples=60, deadline=None)
@given(streams())
def test_visible_edges_by_brute_force(drawn: tuple[Graph, TaskStream, dict]) -> None:
    graph, stream, options = drawn
    home = {c: task.id for task in stream for c in task.classes}

    def visible(u: int, v: int, i: int) -> bool:
        a, b = int(graph.y[u]), int(graph.y[v])
        if options["edges"] == "all":
            return True
        if options["edges"] == "own":
            return a in home and b in home and home[a] == home[b]
        return all(c not in home or home[c] <= i for c in (a, b))

    every = pairs(graph)
    for task in stream:
        kept = [i for i, (u, v) in enumerate(every) if visible(u, v, task.id)]
        assert pairs(task.graph) == [every[i] for i in kept]
        weight = task.graph.edge_weight
        assert (weight is None) == (graph.edge_weight is None)
        assert weight is None or weight.tolist() == kept


@settings(max_examples=40, deadline=None)
@given(streams())
def test_labels_outside_the_tasks_are_hidden(drawn: tuple[Graph, TaskStream, dict]) -> None:
    graph, stream, _ = drawn
    for task in stream:
        expected = [c if c in stream.classes else UNLABELED for c in graph.y.tolist()]
        assert task.graph.y.tolist() == expected
        assert task.graph.public_split is None


@settings(max_examples=30, deadline=None)
@given(streams())
def test_views_share_features_and_labels(drawn: tuple[Graph, TaskStream, dict]) -> None:
    graph, stream, options = drawn
    assert all(task.graph.x is graph.x for task in stream)
    assert all(task.graph.y is stream[0].graph.y for task in stream)
    if options["edges"] != "seen":
        assert all(task.graph is stream[0].graph for task in stream)


@settings(max_examples=40, deadline=None)
@given(streams())
def test_targets_are_positions_in_the_tasks_classes(drawn: tuple[Graph, TaskStream, dict]) -> None:
    graph, stream, _ = drawn
    for task in stream:
        positions = task.targets(task.test).tolist()
        assert [task.classes[p] for p in positions] == graph.y[task.test].tolist()


@settings(max_examples=30, deadline=None)
@given(order_seed=SEEDS, classes=st.integers(2, 7))
def test_a_shuffled_order_is_a_permutation_decided_by_its_seed(order_seed: int, classes: int) -> None:
    graph = random_graph(n=4 * classes, classes=classes)

    def order() -> tuple[int, ...]:
        options = {"classes_per_task": 1, "class_order": "shuffled", "order_seed": order_seed}
        return TaskStream.from_classes(graph, **options).classes

    torch.manual_seed(order_seed)
    first = order()
    torch.manual_seed(order_seed + 1)
    assert order() == first
    assert sorted(first) == list(range(classes))


@pytest.mark.parametrize("split", ["auto", "seeded"])
def test_a_small_graph_without_masks_gets_a_suitable_split(split: str) -> None:
    graph = replace(random_graph(n=280, classes=7, p_edge=0.0), public_split=None)
    stream = TaskStream.from_classes(graph, split=split, split_seed=3)
    assert len(stream) == 3
    for task in stream:
        count = int(torch.isin(graph.y, torch.tensor(task.classes)).sum())
        assert [task.train.numel(), task.val.numel(), task.test.numel()] == pytest.approx(
            [0.6 * count, 0.2 * count, 0.2 * count], abs=2
        )
    assert stream.notes == ("split by seed 3: 60 % of each class for training, 20 % for validation, 20 % for test",)


def test_auto_uses_the_public_split_if_available() -> None:
    graph = random_graph()
    auto, public = (TaskStream.from_classes(graph, split=split) for split in ("auto", "public"))
    assert [task.train.tolist() for task in auto] == [task.train.tolist() for task in public]
    assert auto.notes == ()
    with pytest.raises(InputError, match="the graph has no public split; use split='seeded'"):
        TaskStream.from_classes(replace(graph, public_split=None), split="public")


def test_moving_a_stream_keeps_what_is_shared() -> None:
    seen = TaskStream.from_classes(random_graph(), edges="seen", metric="micro-f1").to("meta")
    assert seen[0].graph.x is seen[1].graph.x
    assert seen[0].graph.edge_index is not seen[1].graph.edge_index
    assert {seen[0].train.device.type, seen[1].graph.y.device.type} == {"meta"}
    assert seen.metric == "micro-f1"
    shared = TaskStream.from_classes(random_graph()).to("meta")
    assert shared[0].graph is shared[1].graph
    graph = random_graph()
    weighted = TaskStream.from_classes(replace(graph, edge_weight=torch.ones(graph.num_edges))).to("meta")
    assert weighted[0].graph.edge_weight.device.type == "meta"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes_per_task": 0}, "random with 4 classes: classes_per_task is 0; it must be 1 to 4"),
        ({"num_tasks": 3}, "random with 4 classes, 2 per task: num_tasks is 3; it must be 1 to 2"),
        ({"class_order": "random"}, "unknown class_order 'random'; choose one of: natural, shuffled"),
        ({"class_order": [0, 1, 2, 4]}, r"class_order is \[0, 1, 2, 4\]; it must have each class, 0 to 3, once"),
        ({"class_order": [0, 1, 1, 2, 3]}, "class_order is"),
        ({"split": "random"}, "unknown split 'random'; choose one of: auto, public, seeded"),
        ({"edges": "none"}, "unknown edges 'none'; choose one of: all, own, seen"),
        ({"leftover": "keep"}, "unknown leftover 'keep'; choose one of: context, last"),
        ({"metric": "f1"}, "unknown metric 'f1'.*; choose one of: accuracy, micro-f1"),
    ],
)
def test_invalid_options_are_named(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TaskStream.from_classes(random_graph(), **options)


def ids(*nodes: int) -> torch.Tensor:
    return torch.tensor(nodes, dtype=torch.long)


def tiny(**changes) -> Graph:
    """Six nodes, classes 0 0 0 1 1 and none."""
    graph = Graph(torch.ones(6, 2), ids(0, 1, 1, 0).reshape(2, 2), ids(0, 0, 0, 1, 1, -1), name="tiny")
    return replace(graph, **changes)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (Split(ids(0, 1), ids(), ids(2, 4)), r"tiny: task 2 \(classes 1\) has no train nodes"),
        (Split(ids(0, 3), ids(), ids(2)), r"tiny: task 2 \(classes 1\) has no test nodes"),
        (Split(ids(0, 3), ids(3), ids(2, 4)), "tiny: node 3 is in train and val"),
        (Split(ids(0, 3), ids(), ids(2, 6)), "tiny, test: nodes contains 6; nodes are 0 to 5"),
        (Split(ids(0, 3), ids(5), ids(2, 4)), "tiny: val contains node 5, which has no label"),
    ],
)
def test_invalid_splits_are_named(split: Split, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TaskStream.from_classes(tiny(), classes_per_task=1, split=split)


def test_values_of_the_graph_are_checked_first() -> None:
    with pytest.raises(InputError, match="tiny: label 1 is out of range; 1 classes are named"):
        TaskStream.from_classes(tiny(class_names=("only",)), classes_per_task=1)


def test_targets_of_another_tasks_nodes_are_rejected() -> None:
    stream = TaskStream.from_classes(random_graph())
    node = int(stream[1].train[0])
    with pytest.raises(InputError, match=rf"task 1 \(classes 0, 1\): node {node} has label [23]"):
        stream[0].targets(stream[1].train)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": 3}, "mine: task 4 .* is at position 0"),
        ({"classes": ()}, r"has classes \(\); at least one class is required, each once"),
        ({"classes": (0, 0)}, r"has classes \(0, 0\)"),
        ({"test": ids(3)}, "node 3 has label 1, not one of the task's"),
    ],
)
def test_a_custom_stream_is_checked(changes: dict, message: str) -> None:
    task = Task(0, tiny(), ids(0), ids(1), ids(2), (0,))
    assert TaskStream([task]).classes == (0,)
    with pytest.raises(InputError, match=message):
        TaskStream([replace(task, **changes)], name="mine")
    with pytest.raises(InputError, match="mine: a stream needs at least one task"):
        TaskStream([], name="mine")
