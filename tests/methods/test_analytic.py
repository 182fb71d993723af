"""The closed-form method through the learner."""

import pickle
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analytic.dense import dense_phi, dense_ridge, dense_s, dense_x, one_hot, weights_of
from ergnn.analytic.inputs import ColumnScales
from ergnn.config.errors import InputError
from ergnn.data import Graph, Task, TaskStream, make_stream, splits
from ergnn.learning.learner import Learner
from ergnn.nn.heads import HEADS
from ergnn.testing import check_method
from ergnn.testing.examples import example_stream
from graphs import graphs, random_graph


def learned(stream: TaskStream, head: str = "growing", **options: object) -> Learner:
    learner = Learner("sgc", "analytic", head=head, **options)
    for task in stream:
        learner.observe(task)
    return learner


@given(
    graph=graphs(),
    head=st.sampled_from(HEADS),
    name=st.sampled_from(["ppr", "hops"]),
    edges=st.sampled_from(["own", "seen", "all"]),
    weighted=st.booleans(),
    scale=st.sampled_from(["rows", "columns"]),
)
@settings(max_examples=40)
def test_scores_equal_dense_matrices(
    graph: Graph, head: str, name: str, edges: str, weighted: bool, scale: str
) -> None:
    graph = with_weights(graph) if weighted else graph
    stream = TaskStream.from_classes(graph, classes_per_task=2, edges=edges)
    learner = Learner("sgc", "analytic", head=head, feature_map=name, lam=0.3, scale=scale, kernel="linear")
    x, square = dense_x(graph), 0.0
    if scale == "columns" and (scales := ColumnScales.fit(graph.x, range(graph.num_features))) is not None:
        x, square = scales.apply(graph.dense_x()).double().numpy(), float(graph.num_features)
    nodes = torch.empty(0, dtype=torch.long)
    for task in stream:
        learner.observe(task)
        nodes = torch.cat([nodes, task.train])
        labels = graph.y[nodes].numpy()
        phi = dense_phi(name, dense_s(task.graph, task.graph.edge_weight), x, square)
        weight = dense_ridge(phi[nodes], one_hot(labels), weights_of(labels), 0.3)
        scores = torch.from_numpy(phi @ weight)
        known = sorted(set(labels.tolist()))
        tau = learner.history[-1]["selection"]["temperature"]
        for earlier in stream[: task.id + 1]:
            columns = [known.index(int(c)) for c in learner.classes(earlier.id)]
            expected = torch.softmax(tau * scores[earlier.test][:, columns], 1)
            # λ = 0.001 and τ = 1,000 amplify rounding errors to this size
            torch.testing.assert_close(learner.predict_proba(earlier.test, earlier.id), expected, rtol=0, atol=1e-5)


def with_weights(graph: Graph) -> Graph:
    """Random weights, about a fifth of them 0."""
    weight = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return replace(graph, edge_weight=(2 * weight - 0.4).clamp(min=0))


def test_methods_that_would_ignore_edge_weights_refuse_them() -> None:
    plain = random_graph(n=40, classes=4)
    graph = with_weights(plain)
    stream = TaskStream.from_classes(graph, classes_per_task=2)
    for options in ({"method": "replay"}, {"method": "nearest-mean"}, {"method": "analytic", "student": True}):
        learner = Learner("gcn", head="growing", epochs=1, **options)
        with pytest.raises(InputError, match=r"the graph has edge weights, which method \w+ does not use"):
            learner.observe(stream[0])
        learner.observe(replace(stream[0], graph=stream[0].graph.unweighted()))
        with pytest.raises(InputError, match="edge weights"):
            learner.predict(stream[0].test, graph=graph)
    nodes = stream[0].test
    heads = [learned(each) for each in (stream, TaskStream.from_classes(plain, classes_per_task=2))]
    assert not torch.equal(heads[0].predict_proba(nodes, 0), heads[1].predict_proba(nodes, 0))


@pytest.mark.parametrize("options", [{"memory": "statistics", "per_class": 2}, {"sketch": 5}, {"feature_map": "hops"}])
def test_options_pass_the_contract_suite(options: dict[str, object]) -> None:
    check_method("analytic", **options)


def test_cora_reaches_the_accuracy_of_joint_training() -> None:
    scores = []
    for seed in range(2):
        stream = make_stream(
            "cora",
            split="seeded",
            split_seed=seed,
            class_order="shuffled",
            order_seed=seed,
            classes_per_task=1,  # all seven classes
        ).stream
        learner = learned(stream)
        test = torch.cat([task.test for task in stream])
        scores.append(float((learner.predict(test) == stream[0].graph.y[test]).double().mean()))
        assert learner.history[-1]["selection"]["map"] == "ppr"
        assert learner.method.nbytes == 2 * 8 * 140
    assert 0.80 < sum(scores) / 2 < 0.84


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("exact", [True, False])
def test_a_restored_state_continues_and_predicts_in_a_given_graph(
    kernel: str, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exact:  # Nyström features
        monkeypatch.setattr("ergnn.analytic.ridge.EXACT_ROWS", 20)
        monkeypatch.setattr("ergnn.analytic.ridge.LANDMARKS", 10)
    stream = TaskStream.from_classes(random_graph(n=80, classes=6), edges="seen")
    first = learned(stream[:2], kernel=kernel)
    assert first.history[-1]["selection"]["kernel"] == kernel
    other = Learner("sgc", "analytic", head="growing", kernel=kernel)
    other.load_state_dict(first.state_dict(), stream[1].graph)
    nodes = stream[0].test
    torch.testing.assert_close(other.predict_proba(nodes), first.predict_proba(nodes), rtol=0, atol=0)
    for learner in (first, other):
        learner.observe(stream[2])
    torch.testing.assert_close(other.predict_proba(nodes), first.predict_proba(nodes), rtol=0, atol=0)
    with pytest.raises(InputError, match="feature map 'ppr'"):
        Learner("sgc", "analytic", head="growing", feature_map="hops").load_state_dict(first.state_dict())


@pytest.mark.parametrize("edited", ["x", "edge_index"])
def test_edits_of_the_graph_in_place_are_noticed(edited: str) -> None:
    stream = TaskStream.from_classes(random_graph(n=80, classes=6))
    learner, graph, nodes = learned(stream[:2], kernel="linear"), stream[0].graph, torch.arange(80)
    before, state = learner.predict_proba(nodes), learner.state_dict()
    if edited == "x":
        graph.x.mul_(torch.rand(graph.x.shape, generator=torch.Generator().manual_seed(0)))
    else:
        graph.edge_index[0] = graph.edge_index[0].flip(0)
    assert not torch.equal(learner.predict_proba(nodes), before)
    other, task = Learner("sgc", "analytic", head="growing", kernel="linear"), stream[2]
    copied = replace(graph, x=graph.x.clone(), edge_index=graph.edge_index.clone())
    other.load_state_dict(state, copied)
    for each, where in ((learner, graph), (other, copied)):
        each.set_graph(where)
    assert torch.equal(learner.predict_proba(nodes), other.predict_proba(nodes))
    learner.observe(task)
    other.observe(replace(task, graph=copied))
    torch.testing.assert_close(learner.predict_proba(nodes), other.predict_proba(nodes))


def test_forgotten_nodes_leave_no_trace_and_new_ids_change_nothing() -> None:
    graph = random_graph(n=60, classes=2)
    task = TaskStream.from_classes(graph)[0]
    gone = task.train[:3]
    learner = learned([task])
    assert learner.forget_nodes(torch.cat([gone, task.test[:1]])) == 3
    assert not torch.isin(gone, learner.state_dict()["method"]["nodes"]).any()
    never = learned([replace(task, train=task.train[3:])])
    everything = torch.arange(60)
    torch.testing.assert_close(learner.predict_proba(everything), never.predict_proba(everything), rtol=0, atol=0)
    assert learner.forget_nodes(gone) == 0

    place = torch.randperm(60, generator=torch.Generator().manual_seed(0))  # node v becomes place[v]
    back = place.argsort()
    moved = Graph(graph.x[back], place[graph.edge_index], graph.y[back])
    learner.remap_nodes(lambda nodes: place[nodes])
    learner.set_graph(moved)
    learner.forget_nodes(place[task.train[3:4]])
    never = learned([replace(task, train=task.train[4:])])
    torch.testing.assert_close(
        learner.predict_proba(place[everything]), never.predict_proba(everything), rtol=0, atol=1e-9
    )
    assert learner.forget_nodes(place[task.train]) == task.train.numel() - 4
    torch.testing.assert_close(learner.predict_proba(everything), torch.full((60, 2), 0.5, dtype=torch.float64))


def domains() -> list[Task]:
    tasks = []
    for i in range(3):
        graph = random_graph(n=50 + i, classes=2, seed=7, p_edge=0.1)
        graph = replace(graph, x=graph.x + 0.1 * i)
        split = splits.per_class(graph.y, train=10, val=0, seed=i)
        tasks.append(Task(i, graph, split.train, split.val, split.test, (0, 1), own_graph=True))
    return tasks


@pytest.mark.parametrize("memory", ["nodes", "statistics"])
def test_tasks_with_their_own_graph_store_rows_or_statistics(memory: str) -> None:
    tasks = domains()
    learner = learned(tasks, memory=memory, scale="rows")
    assert all(learner.evaluate(task) > 0.6 for task in tasks)
    kept = learner.method.nbytes
    widths = [learner.method._features_of(tasks[0].graph, each).width for each in learner.method.maps]
    rows, number, label = (2 * 3 * 10, 8, 8) if memory == "nodes" else (2 * 5, 4, 0)
    assert kept == sum(rows * (width * number + label) for width in widths) + (0 if memory == "nodes" else 2 * 16)
    with pytest.raises(InputError, match="cannot be removed"):
        learner.forget_nodes(tasks[0].train)


def test_a_graph_of_a_single_task_after_shared_ones_is_refused() -> None:
    first, second = (replace(task, own_graph=i > 0) for i, task in enumerate(domains()[:2]))
    with pytest.raises(InputError, match="this task has a graph of its own"):
        learned([first, second])


def test_statistics_take_few_rows_per_class_and_are_nearly_as_accurate() -> None:
    stream = make_stream("cora", split="seeded", classes_per_task=1, class_order="shuffled").stream
    test = torch.cat([task.test for task in stream])
    learner = learned(stream, memory="statistics", per_class=5)
    assert learner.history[-1]["selection"]["lam"] == 0.3
    stored = learner.method.state_dict()["statistics"]
    assert [each["size"] for each in stored.values()] == [20] * 7
    assert [len(each["directions"]) for each in stored.values()] == [3] * 7
    assert learner.method.nbytes == 7 * (5 * 1434 * 4 + 16)
    accuracy = {}
    for size in (1, 5, None):
        options = {} if size is None else {"memory": "statistics", "per_class": size}
        found = learned(stream, feature_map="ppr", **options)
        accuracy[size] = float((found.predict(test) == stream[0].graph.y[test]).double().mean())
    assert accuracy[5] > accuracy[None] - 0.01
    assert accuracy[5] > accuracy[1]


def test_statistics_use_lambda_and_new_scores_after_each_task() -> None:
    stream = TaskStream.from_classes(random_graph(n=80, classes=6, seed=1), edges="all")
    found = []
    for lam in (0.3, 5.0):
        learner = learned(stream[:2], memory="statistics", lam=lam)
        assert learner.history[-1]["selection"]["lam"] == lam
        learner.predict(torch.arange(80))  # fills the cache of the graph
        learner.observe(stream[2])
        found.append(learner.predict_proba(torch.arange(80)))
        torch.testing.assert_close(
            found[-1], learned(stream, memory="statistics", lam=lam).predict_proba(torch.arange(80))
        )
    assert not torch.allclose(found[0], found[1])


def test_statistics_outlive_renumbered_nodes_pickling_and_a_change_of_the_graph() -> None:
    graph = random_graph(n=80, classes=6, seed=1)
    stream = TaskStream.from_classes(graph, edges="all")
    learner = learned(stream[:2], memory="statistics")
    before = learner.predict_proba(torch.arange(80))
    learner.method.refresh(replace(graph, edge_index=graph.edge_index[:, :0]))
    assert torch.equal(learner.predict_proba(torch.arange(80)), before)
    learner.method.remap_nodes(lambda nodes: nodes)
    learner.method = pickle.loads(pickle.dumps(learner.method))
    learner.observe(stream[2])
    expected = learned(stream, memory="statistics").predict_proba(torch.arange(80))
    torch.testing.assert_close(learner.predict_proba(torch.arange(80)), expected)


def test_the_width_of_statistics_is_fixed_by_the_first_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ergnn.analytic.head.SKETCH_SIZE", 16)
    monkeypatch.setattr("ergnn.analytic.head.EXACT_ROWS", 0)
    graph = random_graph(n=200, f=40, classes=2)
    split = splits.per_class(graph.y, train=60, val=5)
    few, many = [split.train[graph.y[split.train] == c] for c in (0, 1)]
    tasks = [Task(i, graph, nodes, split.val, split.test, (i,)) for i, nodes in enumerate((few[:10], many))]
    assert [each["selection"]["sketch"] for each in learned(tasks, memory="statistics").history] == [None, None]


def test_a_state_of_an_earlier_version_is_read() -> None:
    tasks = domains()
    learner = learned(tasks)
    state = learner.method.state_dict()
    del state["statistics"]
    for parts in state["kept"].values():
        parts.append(torch.ones(len(parts[1])))
    other = learned([])
    other.method.load_state_dict(state)
    assert other.method.nbytes == learner.method.nbytes
    assert torch.equal(other.method.solution.weight, learner.method.solution.weight)


def test_a_state_of_another_memory_is_rejected() -> None:
    stream = TaskStream.from_classes(random_graph(n=80, classes=4))
    for memory, other in (("nodes", "statistics"), ("statistics", "nodes")):
        state = learned(stream, memory=memory).method.state_dict()
        with pytest.raises(InputError, match=f"the state is of memory '{memory}'; this method has memory '{other}'"):
            learned(stream[:0], memory=other).method.load_state_dict(state)


def test_the_order_of_tasks_does_not_matter_to_statistics_of_new_classes() -> None:
    graph = random_graph(n=80, classes=6, seed=1)
    found = []
    for order in ([0, 1, 2, 3, 4, 5], [5, 2, 0, 4, 1, 3]):
        learner = learned(
            TaskStream.from_classes(graph, class_order=order, edges="all"), memory="statistics", feature_map="ppr"
        )
        found.append(learner.predict_proba(torch.arange(80))[:, learner.classes().argsort()])
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-10)


def test_a_sketch_is_chosen_by_width_and_number_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ergnn.analytic.head.SKETCH_SIZE", 16)
    monkeypatch.setattr("ergnn.analytic.head.EXACT_ROWS", 0)
    for width, expected in ((12, None), (20, 16), (90, None)):  # narrow; wide; wide, but fewer nodes than columns
        stream = TaskStream.from_classes(random_graph(n=80, f=width, classes=2))
        assert learned(stream).history[-1]["selection"]["sketch"] == expected
        assert learned(stream, sketch=None).history[-1]["selection"]["sketch"] is None
        assert learned(stream, sketch=10).history[-1]["selection"]["sketch"] == 10


def test_one_node_per_class_and_a_single_class_can_be_learned() -> None:
    graph = random_graph(n=40, classes=4, isolated=5)
    stream = TaskStream.from_classes(graph, split=splits.per_class(graph.y, train=1, val=1))
    assert [learned(stream).evaluate(task) >= 0 for task in stream] == [True, True]
    one = TaskStream.from_classes(graph, classes_per_task=1)[:1]
    assert learned(one).evaluate(one[0]) == 1.0


def test_a_student_learns_from_the_head() -> None:
    stream = example_stream()
    head = learned(stream)
    student = Learner("gcn", "analytic", head="growing", student=True, epochs=100, lr=0.05)
    plain = Learner("gcn", "finetune", head="growing", epochs=100, lr=0.05)
    for task in stream:
        student.observe(task)
        plain.observe(task)
    everything = torch.arange(stream[0].graph.num_nodes)
    agree = float((student.predict(everything) == head.predict(everything)).double().mean())
    assert agree > 0.85
    assert agree > 0.2 + float((plain.predict(everything) == head.predict(everything)).double().mean())
    assert same_state(student, head)
    with pytest.raises(InputError, match="head is 'per-task'"):
        Learner("gcn", "analytic", student=True).observe(stream[0])


def same_state(one: Learner, two: Learner) -> bool:
    a, b = one.method.state_dict(), two.method.state_dict()
    return torch.equal(a["nodes"], b["nodes"]) and torch.equal(a["solution"]["weight"], b["solution"]["weight"])


def test_a_graph_that_lost_labeled_nodes_is_refused() -> None:
    graph = random_graph(n=40, classes=2)
    learner = learned(TaskStream.from_classes(graph))
    small = Graph(graph.x[:5], torch.empty(2, 0, dtype=torch.long), graph.y[:5])
    with pytest.raises(InputError, match="the graph has 5 nodes"):
        learner.method.refresh(small)
