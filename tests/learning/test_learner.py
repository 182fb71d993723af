"""The learner: predictions, saved states, training side by side, and errors."""

import io
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ergnn.config.errors import CurvatureError, DivergedError, InputError, UnknownNameError
from ergnn.data import Graph, Task, TaskStream
from ergnn.learning.learner import Learner, _on_device
from ergnn.learning.observing import observe_together
from ergnn.nn.backbones.convolutional import GCN
from ergnn.replay import SELECTORS
from graphs import random_graph

HEADS = ("shared", "per-task", "growing")


@pytest.fixture(scope="module")
def stream() -> TaskStream:
    return TaskStream.from_classes(random_graph(n=60, f=6, classes=6, p_edge=0.08, seed=1), edges="seen")


def learn(learner: Learner, tasks: tuple[Task, ...] | TaskStream) -> Learner:
    for task in tasks:
        learner.observe(task)
    return learner


def assert_same(a: Learner, b: Learner, *, exact: bool = True) -> None:
    old, new = a.model.state_dict(), b.model.state_dict()
    assert old.keys() == new.keys()
    for name in old:
        torch.testing.assert_close(new[name], old[name], rtol=0 if exact else 1e-4, atol=0 if exact else 1e-5)
    if a.method.buffer is not None:
        assert torch.equal(a.method.buffer.nodes, b.method.buffer.nodes)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("backbone", ["gat", "sgc"])
def test_probabilities_are_the_softmax_of_the_scores(stream: TaskStream, backbone: str, head: str):
    learner = learn(Learner(backbone, head=head, epochs=3), stream)
    graph, nodes = stream[2].graph, torch.tensor([5, 0, 17, 5])
    with torch.no_grad():
        scores = [learner.model.eval()(graph.x, graph.edge_index, k)[nodes] for k in range(len(learner.model.heads))]
    for task in stream:
        expected = scores[0 if head == "shared" else task.id].softmax(1)
        torch.testing.assert_close(learner.predict_proba(nodes, task.id), expected)
        assert tuple(learner.classes(task.id).tolist()) == task.classes
        assert torch.equal(learner.predict(nodes, task.id), torch.tensor(task.classes)[expected.argmax(1)])
    if head == "growing":
        torch.testing.assert_close(learner.predict_proba(nodes), torch.cat(scores, 1).softmax(1))
        assert tuple(learner.classes().tolist()) == stream.classes


@pytest.mark.parametrize("head", HEADS)
def test_evaluation_is_the_accuracy_in_the_latest_graph(stream: TaskStream, head: str):
    learner = learn(Learner("gcn", head=head, epochs=30), stream)
    for task in stream:
        for split in ("train", "val", "test"):
            nodes = getattr(task, split)
            given = None if head == "growing" else task.id
            right = learner.predict(nodes, given, graph=stream[2].graph) == task.graph.y[nodes]
            assert learner.evaluate(task, split) == pytest.approx(float(right.float().mean()))
    known = learner.predict(stream[0].test, 0) == stream[0].graph.y[stream[0].test]
    assert learner.evaluate(stream[0], task_known=True) == pytest.approx(float(known.float().mean()))


STATES = [
    ("shared", {"selector": "random"}, True),
    ("per-task", {"selector": "im", "per_class": 2}, False),
    ("growing", {"selector": "mf*", "per_class": 3, "class_balance": "memory"}, True),
    ("per-task", {"selector": "cm", "replay": "isolated"}, False),
    ("growing", {"selector": "mf*", "replay": "isolated"}, True),
    ("shared", {"selector": "mf", "replay": "ego"}, False),
    ("per-task", {"selector": "mf", "replay": "ego"}, True),
    ("per-task", {"method": "joint"}, False),
    ("per-task", {"method": "finetune"}, True),
]


@pytest.mark.parametrize(("head", "options", "sparse"), STATES, ids=str)
def test_continuing_from_a_saved_state_gives_the_same_bits(head: str, options: dict, sparse: bool, tmp_path: Path):
    graph = random_graph(n=60, f=6, classes=6, seed=1, sparse=sparse)
    stream = TaskStream.from_classes(graph)

    def make(seed: int) -> Learner:
        return Learner("gat", head=head, epochs=4, seed=seed, weight_decay=5e-4, **options)

    unbroken = make(7)
    learn(unbroken, stream[:2])
    state, file = unbroken.state_dict(), io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    unbroken.save(tmp_path / "learner", graph=True)
    resumed_from = [Learner.load(tmp_path / "learner")]
    before = unbroken.predict_proba(stream[0].test, 0)
    assert torch.equal(resumed_from[0].predict_proba(stream[0].test, 0), before)
    unbroken.observe(stream[2])
    for saved in (torch.load(file, weights_only=True), state):  # a copy, which later training does not change
        resumed_from.append(make(0))
        resumed_from[-1].load_state_dict(saved)
    for resumed in resumed_from:
        assert resumed.num_tasks == 2
        resumed.observe(stream[2])
        assert_same(unbroken, resumed)
        assert torch.equal(unbroken.predict_proba(stream[0].test, 0), resumed.predict_proba(stream[0].test, 0))


def test_a_loaded_state_predicts_in_a_given_graph_and_can_be_saved_again(stream: TaskStream):
    learner = learn(Learner("sgc", epochs=2), stream[:1])
    loaded = Learner("sgc", epochs=2)
    loaded.load_state_dict(learner.state_dict())
    with pytest.raises(InputError, match=r"this learner has no graph; call learner.set_graph\(graph\), or pass graph="):
        loaded.predict(stream[0].test, 0)
    expected = learner.predict_proba(stream[0].test, 0)
    assert torch.equal(loaded.predict_proba(stream[0].test, 0, graph=stream[0].graph), expected)
    again = Learner("sgc", epochs=2)
    again.load_state_dict(loaded.state_dict(), graph=stream[0].graph)
    assert torch.equal(again.predict_proba(stream[0].test, 0), expected)


def test_states_of_other_learners_are_refused(stream: TaskStream):
    state = learn(Learner("sgc", "finetune", epochs=1), stream[:1]).state_dict()
    with pytest.raises(InputError, match="schema 99"):
        Learner("sgc", "finetune").load_state_dict({**state, "schema": 99})
    for other, message in (
        (Learner("sgc", "finetune", head="shared"), "'per-task'.*'shared'"),
        (Learner("sgc", "replay"), "method_name is 'Finetune'; this learner's is 'Replay'"),
        (Learner("gat", "finetune"), "backbone is 'sgc'; this learner's is 'gat'"),
    ):
        with pytest.raises(InputError, match=message):
            other.load_state_dict(state)


UNLIKE = {
    "methods": [{"method": "finetune"}, {"method": "replay"}, {"method": "joint"}],
    "options": [{"backbone_options": {"hidden": 4}}, {"backbone_options": {"hidden": 7}}],
    "dropout": [{"backbone_options": {"dropout": 0.0}}, {"backbone_options": {"dropout": 0.9}}],
    "epochs": [{"epochs": 2}, {"epochs": 5}],
    "heads": [{"head": "shared"}, {"head": "growing"}],
}


@pytest.mark.parametrize("unlike", UNLIKE)
def test_learners_that_cannot_be_stacked_equal_single_learners(stream: TaskStream, unlike: str):
    made = [[Learner("gcn", **{"epochs": 3, "seed": 1, **options}) for options in UNLIKE[unlike]] for _ in range(2)]
    for task in stream:
        observe_together(made[0], [task] * len(made[0]))
    for same, one in zip(*made, strict=True):
        assert_same(learn(one, stream), same, exact=False)


def test_learners_at_different_tasks_equal_single_learners(stream: TaskStream):
    made = [[Learner("gat", epochs=3, seed=i) for i in range(2)] for _ in range(2)]
    for ahead, _ in made:
        ahead.observe(stream[0])
    observe_together(made[0], [stream[1], stream[0]])
    made[1][0].observe(stream[1])
    made[1][1].observe(stream[0])
    for same, one in zip(*made, strict=True):
        assert_same(one, same, exact=False)


class ThirdPartyModule(nn.Module):
    """Any module with ``forward(x, adj)``."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.unused = nn.Linear(6, outputs), nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return self.linear(x).index_add(0, adj[1], self.linear(x)[adj[0]])


@pytest.mark.parametrize(("head", "outputs"), [("shared", 2), ("per-task", 6), ("growing", 6)])
def test_a_third_party_module_learns_with_every_head(stream: TaskStream, head: str, outputs: int):
    module = ThirdPartyModule(outputs)
    before = module.linear.weight.detach().clone()
    learner = learn(Learner(module, head=head, epochs=60, lr=0.05, selector="mf", class_balance="none"), stream)
    assert learner.evaluate(stream[2], "train") > 0.6
    assert torch.equal(module.linear.weight, before), "a copy is trained"
    with torch.no_grad():
        scores = learner.model.module(stream[2].graph.x, stream[2].graph.edge_index)[:4]
    first = 0 if head == "shared" else 4
    torch.testing.assert_close(learner.predict_proba(torch.arange(4), 2), scores[:, first : first + 2].softmax(1))
    again = Learner(ThirdPartyModule(outputs), head=head, lr=0.05, selector="mf")
    again.load_state_dict(learner.state_dict(), graph=stream[2].graph)
    assert torch.equal(again.predict(stream[0].test, 0), learner.predict(stream[0].test, 0))


@pytest.mark.parametrize("options", [{"selector": "im"}, {"method": "ewc"}, {"method": "gem"}], ids=str)
def test_a_third_party_module_supports_every_method_on_sparse_features(options: dict):
    stream = TaskStream.from_classes(random_graph(n=60, f=6, classes=6, seed=1, sparse=True))
    learner = learn(Learner(ThirdPartyModule(2), head="shared", epochs=3, **options), stream[:2])
    assert 0.0 <= learner.evaluate(stream[0]) <= 1.0


@pytest.mark.parametrize("head", HEADS)
def test_a_failed_task_does_not_change_the_learner(stream: TaskStream, head: str):
    failing, clean = (Learner("gcn", selector="mf", head=head, epochs=5).observe(stream[0]) for _ in range(2))
    good = failing.method.selector
    failing.method.selector = SELECTORS.create("im", max_iterations=1, tolerance=1e-12)
    with pytest.raises(CurvatureError):
        failing.observe(stream[1])
    failing.method.selector = good
    assert failing.heads.classes == clean.heads.classes
    assert_same(learn(failing, stream[1:]), learn(clean, stream[1:]))


def test_a_failed_first_task_does_not_change_the_learner(stream: TaskStream):
    learner = Learner("gcn", "finetune", lr=1e30, epochs=5)
    with pytest.raises(DivergedError, match=r"lr = 1e\+30; use a smaller lr"):
        learner.observe(stream[0])
    assert (learner.model, learner.num_tasks, learner.heads.classes) == (None, 0, [])


def test_one_module_can_be_passed_to_two_learners(stream: TaskStream):
    module = GCN(6)
    pair = [Learner(module, epochs=3, seed=seed, selector="mf") for seed in (0, 1)]
    observe_together(pair, [stream[0], stream[0]])
    assert pair[0].model is not pair[1].model
    assert_same(Learner(module, epochs=3, seed=1, selector="mf").observe(stream[0]), pair[1], exact=False)


def test_a_backbone_that_already_has_a_head_is_refused(stream: TaskStream):
    with pytest.raises(InputError, match="without out_channels"):
        Learner(GCN(6, 2)).observe(stream[0])


def test_tasks_out_of_order_are_refused(stream: TaskStream):
    with pytest.raises(InputError, match="next task must be number 1"):
        Learner("sgc").observe(stream[1])
    learner = Learner("sgc", epochs=1).observe(stream[0])
    with pytest.raises(InputError, match="next task must be number 2"):
        learner.observe(stream[0])
    with pytest.raises(InputError, match="has not been learned"):
        learner.evaluate(stream[1])


@pytest.mark.parametrize("resumed", [False, True])
def test_a_different_number_of_features_is_refused(stream: TaskStream, resumed: bool):
    learner = Learner("sgc", epochs=1).observe(stream[0])
    if resumed:
        state, learner = learner.state_dict(), Learner("sgc")
        learner.load_state_dict(state)
    graph = stream[1].graph
    wider = replace(stream[1], graph=Graph(torch.cat([graph.x, graph.x], 1), graph.edge_index, graph.y))
    with pytest.raises(InputError, match=r"12 features; this learner.s tasks had 6"):
        learner.observe(wider)


def test_predictions_require_a_learned_task_and_existing_nodes(stream: TaskStream):
    with pytest.raises(InputError, match="not observed a task"):
        Learner("sgc").predict(torch.tensor([0]), 0)
    learner = Learner("sgc", epochs=1).observe(stream[0])
    with pytest.raises(InputError, match="needs the task of the nodes: pass its number, from task=0 to task=0"):
        learner.predict(torch.tensor([0]))
    for number in (1, -1):
        with pytest.raises(InputError, match=f"task number {number} has not been learned"):
            learner.predict(torch.tensor([0]), number)
    for node in (-1, 60):
        with pytest.raises(InputError, match=f"nodes contains {node}; nodes are 0 to 59"):
            learner.predict(torch.tensor([0, node]), 0)
    for nodes in (torch.tensor(3), torch.tensor([0.5]), torch.tensor([True]), ["a"], "ab"):
        with pytest.raises(InputError, match="vector of node ids"):
            learner.predict(nodes, 0)
    with pytest.raises(UnknownNameError, match="test, train, val"):
        learner.evaluate(stream[0], "holdout")


@pytest.mark.parametrize("form", [list, tuple, lambda ids: ids.numpy(), lambda ids: torch.isin(torch.arange(60), ids)])
def test_nodes_may_come_in_any_form(stream: TaskStream, form: Callable[[torch.Tensor], object]):
    ids = stream[0].test.sort().values
    learner = Learner(method="analytic", head="growing").observe(stream[0])
    assert torch.equal(learner.predict_proba(form(ids)), learner.predict_proba(ids))
    assert torch.equal(learner.suggest(2, form(ids)), learner.suggest(2, ids))
    assert learner.predict([]).shape == (0,)
    for node in (int(ids[0]), ids[0], ids.numpy()[0]):
        assert torch.equal(learner.explain(node).scores, learner.explain(int(ids[0])).scores)
    for call, text in {
        lambda: learner.explain([1]): r"explain: nodes must be a vector of node ids.* of shape \(1, 1\)",
        lambda: learner.suggest(1, [60]): "suggest: nodes contains 60; nodes are 0 to 59",
        lambda: learner.set_graph([]): r"a list; a Graph is required, such as Graph\.from_pyg",
        lambda: TaskStream.from_classes({}): "a dict; a Graph is required",
        lambda: learner.suggest(0): "count is 0; it must be 1 or more",
        lambda: learner.observe(stream): "observe: a TaskStream; a task of a TaskStream is required, such as stream",
        lambda: learner.predict([1], "a"): "task number 'a' has not been learned",
    }.items():
        with pytest.raises(InputError, match=text):
            call()


def test_a_graph_on_another_device_is_moved_once(stream: TaskStream):
    meta, graph = torch.device("meta"), replace(stream[0].graph, x=stream[0].graph.dense_x())
    moved = _on_device(graph, meta)
    assert moved.device == meta
    assert _on_device(graph, meta) is moved
    assert _on_device(graph, graph.device) is graph
    graph.x[0] += 1.0
    again = _on_device(graph, meta)
    assert again is not moved, "the graph was written to"
    other = replace(graph, name="other")
    kept = weakref.ref(again)
    del again
    assert _on_device(other, meta) is _on_device(other, meta)
    assert kept() is None, "one copy is kept at a time"


@pytest.mark.parametrize("name", ["analytic", "nearest-mean", "slda", "tpp"])
def test_a_method_that_trains_no_network_creates_none(name: str, stream: TaskStream):
    learner = learn(Learner(method=name, head="growing", epochs=2), stream)
    assert learner.model is None
    assert learner.state_dict()["model"] == {}
    nodes = torch.arange(stream[0].graph.num_nodes)
    again = Learner(method=name, head="growing", epochs=2)
    again.load_state_dict(learner.state_dict(), stream[-1].graph)
    assert torch.equal(again.predict_proba(nodes), learner.predict_proba(nodes))
    with pytest.raises(InputError, match="trains no network"):
        learner.logits(stream[0].graph, nodes, 0)
