"""Algorithm 1: the weights of Eq. 2 and 3, and the order of its steps."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data import TaskStream
from ergnn.engine.objective import make_objective
from ergnn.engine.training import Training
from ergnn.learning.learner import Learner
from ergnn.learning.observing import begin
from ergnn.methods.replay import Replay, replay_weights
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import SelectionContext, Selector
from graphs import random_graph

sizes = st.integers(1, 200)


@given(sizes, sizes, st.sampled_from(["sum", "balanced", "mean"]), st.none() | st.floats(0.05, 0.95))
def test_weights_are_those_of_equations_1_to_3(task: int, buffer: int, scale: str, beta: float | None):
    losses = torch.linspace(0.1, 3.0, task + buffer, dtype=torch.float64)
    new, old, b = losses[:task], losses[task:], buffer / (task + buffer) if beta is None else beta
    of_task, of_buffer = (new.mean(), old.mean()) if scale == "mean" else (new.sum(), old.sum())
    expected = b * of_task + (1 - b) * of_buffer
    if scale == "balanced":
        expected = (new.mean() + old.mean()) / 2 if beta is None else expected / (b * task + (1 - b) * buffer)
    found = (replay_weights(task, buffer, scale, beta).double() * losses).sum()
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    assert replay_weights(task, 0, scale, beta).tolist() == pytest.approx([1 / task] * task), "without a buffer"


class Spy(Selector):
    """A selector that prefers the last nodes, and records its arguments."""

    def __init__(self) -> None:
        self.parameters: list[dict[str, Tensor]] = []
        self.trained_on: list[tuple[list[int], list[float]]] = []

    def score(self, context: SelectionContext) -> Tensor:
        self.parameters.append({name: value.clone() for name, value in context.model.state_dict().items()})
        self.trained_on.append((context.trained_on.nodes.tolist(), context.trained_on.weights.tolist()))
        return torch.arange(context.nodes.numel()).float()


@pytest.mark.parametrize("head", ["shared", "per-task", "growing"])
def test_nodes_are_selected_after_training_and_then_stored(head: str):
    stream = TaskStream.from_classes(random_graph(n=48, classes=6))
    spy = Spy()
    learner = Learner("gcn", Replay(selector=spy, per_class=2, class_balance="none"), head=head, epochs=3)
    remembered: list[int] = []
    before: dict[str, Tensor] = {}
    for task in stream:
        learner.observe(task)
        final = learner.model.state_dict()
        seen = spy.parameters[-1]
        assert all(torch.equal(seen[name], final[name]) for name in final), "selected with the trained parameters"
        moved = [name for name in before if not torch.equal(before[name], seen[name])]
        assert moved or not before
        nodes, weights = spy.trained_on[-1]
        assert nodes == task.train.tolist() + remembered, "the task's own, then those of earlier tasks only"
        own, old = sum(weights[: task.train.numel()]), sum(weights[task.train.numel() :])
        assert own == pytest.approx(old if remembered else 1.0, rel=1e-5), "both sets weigh the same in total"
        remembered = learner.method.buffer.nodes.tolist()
        before = seen
        labels = task.graph.y[task.train]
        best = [int(task.train[labels == c][i]) for c in task.classes for i in (-1, -2)]
        assert remembered[-4:] == best, "the highest scores of each class"
    assert len(remembered) == 12


def test_finetune_uses_only_the_task_and_continues_from_the_last_parameters():
    stream = TaskStream.from_classes(random_graph(n=48, classes=6))
    learner = Learner("gcn", "finetune", epochs=2).observe(stream[0])
    encoder = learner.model.convs[0].lin.weight.detach().clone()
    _, examples = begin(learner, stream[1])
    assert examples.nodes.tolist() == stream[1].train.tolist()
    assert examples.weights.tolist() == pytest.approx([1 / stream[1].train.numel()] * stream[1].train.numel())
    assert torch.equal(learner.model.convs[0].lin.weight, encoder)
    assert learner.method.buffer is None


def test_joint_learns_all_nodes_so_far_from_new_parameters():
    stream = TaskStream.from_classes(random_graph(n=48, classes=6))
    learner = Learner("gcn", "joint", epochs=2, seed=4)
    first = Learner("gcn", "finetune", seed=4)
    begin(first, stream[0])
    fresh = first.model.convs[0].lin.weight
    learner.observe(stream[0])
    assert not torch.equal(learner.model.convs[0].lin.weight, fresh)
    learner.observe(stream[1])
    _, examples = begin(learner, stream[2])
    assert torch.equal(learner.model.convs[0].lin.weight, fresh), "from scratch: the seed's own first parameters"
    nodes = [stream[i].train for i in (2, 0, 1)]
    assert examples.nodes.tolist() == torch.cat(nodes).tolist()
    assert examples.heads[:, 0].tolist() == [i for i, part in zip((2, 0, 1), nodes, strict=True) for _ in part]
    assert examples.weights.tolist() == pytest.approx([1 / len(examples)] * len(examples))


def test_joint_restarts_a_third_party_module():
    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 6)

        def forward(self, x: Tensor, adj: Tensor) -> Tensor:
            return self.linear(x)

    stream, module = TaskStream.from_classes(random_graph(n=48, classes=6)), Module()
    fresh = module.linear.weight.detach().clone()
    learner = Learner(module, "joint", epochs=2).observe(stream[0])
    assert not torch.equal(learner.model.module.linear.weight, fresh)
    begin(learner, stream[1])
    assert torch.equal(learner.model.module.linear.weight, fresh)


def replay_learner(tasks: TaskStream, **options: Any) -> tuple[Learner, Examples]:
    """Return a learner that has learned two tasks, and the examples of the third."""
    learner = Learner("gcn", "replay", selector="mf", **options)
    for task in tasks[:2]:
        learner.observe(task)
    return learner, begin(learner, tasks[2])[1]


def test_epochs_cycle_through_parts_of_the_buffer():
    stream = TaskStream.from_classes(random_graph(n=96, classes=6))
    task, own = stream[2], stream[2].train.numel()
    learner, examples = replay_learner(stream, epochs=4, per_class=3, replay_batch=5)
    rounds = learner.method.rounds(learner, task, examples)
    assert [len(part) - own for part in rounds] == [4, 4, 4]
    replayed = [node for part in rounds for node in part.nodes[own:].tolist()]
    assert sorted(replayed) == sorted(learner.method.buffer.nodes.tolist())
    for part in rounds:
        assert part.nodes[:own].tolist() == task.train.tolist()
        assert float(part.weights[:own].sum()) == pytest.approx(float(part.weights[own:].sum()), rel=1e-5)
        assert part.weights.tolist() == pytest.approx(replay_weights(own, 4).tolist())
    learner.training = Training(epochs=2)
    few = learner.method.rounds(learner, task, examples)
    assert [len(part) - own for part in few] == [5, 5], "no more sets than epochs"
    learner.method.replay_batch = 0
    assert len(learner.method.rounds(learner, task, examples)) == 1
    in_batches = Learner("gcn", "replay", batch_size=4, replay_batch=1)
    assert len(in_batches.method.rounds(in_batches, task, examples)) == 1, "mini-batches draw their own share"


def test_by_default_an_epoch_replays_as_many_nodes_as_the_task_has_training_nodes():
    stream = TaskStream.from_classes(random_graph(n=96, classes=6))
    small = replace(stream[2], train=stream[2].train[::5])
    own = small.train.numel()
    learner, _ = replay_learner(stream, epochs=9, per_class=4)
    examples = learner.method.examples(learner, small)
    rounds = learner.method.rounds(learner, small, examples)
    assert own < 16 == len(learner.method.buffer)
    assert max(len(part) - own for part in rounds) <= own
    assert len(learner.method.rounds(learner, stream[2], examples)) == 1, "all of a buffer that is no larger"


@pytest.mark.parametrize("selector", ["mf", "cm", "im", "s2-ridge"])
def test_all_nodes_of_a_scarce_class_can_be_stored(selector: str):
    stream = TaskStream.from_classes(random_graph(n=96, classes=6))
    labels = stream[0].graph.y[stream[0].train]
    few = stream[0].train[labels == stream[0].classes[0]][:2]
    rest = stream[0].train[labels != stream[0].classes[0]]
    task = replace(stream[0], train=torch.cat([few, rest]))
    learner = Learner("gcn", "replay", selector=selector, per_class=3)
    with pytest.raises(InputError, match=r"class 0 has 2 training node\(s\), fewer than per_class \(e\) = 3; scarce="):
        learner.observe(task)
    assert learner.model is None, "before training"
    learner = Learner("gcn", "replay", selector=selector, per_class=3, scarce="keep", epochs=2).observe(task)
    part = learner.method.buffer.experiences[0]
    assert set(few.tolist()) <= set(part.nodes.tolist())
    assert sorted(part.labels.tolist()) == sorted([task.classes[0]] * 2 + [task.classes[1]] * 3)
    assert torch.equal(part.labels, task.graph.y[part.nodes])


def test_the_budget_is_never_exceeded():
    stream = TaskStream.from_classes(random_graph(n=96, classes=6))
    learner = Learner("gcn", "replay", selector="mf", per_class=3, budget_nodes=8, epochs=1)
    for task in stream:
        learner.observe(task)
    assert [h["selection"].get("evicted", 0) for h in learner.history] == [0, 4, 6]
    kept = torch.cat([part.labels for part in learner.method.buffer.experiences])
    assert sorted(kept.bincount().tolist()) == [1, 1, 1, 1, 2, 2]


def balanced(mode: str, head: str = "growing", **options: Any) -> tuple[Learner, TaskStream]:
    stream = TaskStream.from_classes(random_graph(n=96, classes=6))
    learner = Learner("gcn", "replay", head=head, selector="mf", epochs=3, per_class=3, class_balance=mode, **options)
    for task in stream[:2]:
        learner.observe(task)
    return learner, stream


def scores_and_targets(learner: Learner, stream: TaskStream) -> tuple[Examples, Tensor, Tensor]:
    """Return the examples of the third task, their scores, and their losses."""
    examples = begin(learner, stream[2])[1]
    objective = make_objective([learner.model], [examples])
    logits = objective.logits(objective.parameters())
    return examples, logits, objective.loss(logits)


def test_logit_adjustment_adds_the_log_of_each_class_s_share():
    learner, stream = balanced("logit-adjustment")
    examples, logits, losses = scores_and_targets(learner, stream)
    share = [float(examples.weights[examples.targets == c].sum() / examples.weights.sum()) for c in range(6)]
    assert sum(share) == pytest.approx(1.0)
    assert share[4] > share[0]
    for i in range(len(examples)):
        adjusted = [float(logits[i, c]) + math.log(share[c]) for c in range(6)]
        expected = math.log(sum(math.exp(z) for z in adjusted)) - adjusted[int(examples.targets[i])]
        assert float(losses[i]) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_with_asymmetric_cross_entropy_only_new_classes_compete_for_new_nodes():
    learner, stream = balanced("ace")
    examples, logits, losses = scores_and_targets(learner, stream)
    for i in range(len(examples)):
        rivals = [4, 5] if i < stream[2].train.numel() else range(6)
        right = float(logits[i, int(examples.targets[i])])
        expected = math.log(sum(math.exp(float(logits[i, c])) for c in rivals)) - right
        assert float(losses[i]) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_memory_balance_trains_new_parameters_on_the_updated_buffer():
    learner, stream = balanced("memory")
    examples = begin(learner, stream[2])[1]
    fresh = learner.new_model(stream.num_features).state_dict()
    assert all(torch.equal(learner.model.state_dict()[name], value) for name, value in fresh.items())
    trained_on = examples.nodes[examples.weights > 0]
    assert examples.weights[examples.weights > 0].tolist() == pytest.approx([1 / 18] * 18)
    learner, stream = balanced("memory")
    learner.observe(stream[2])
    assert sorted(learner.method.buffer.nodes.tolist()) == sorted(trained_on.tolist())


@pytest.mark.parametrize(("per_class", "mode"), [(1, "logit-adjustment"), (2, "memory"), (8, "memory")])
def test_auto_trains_on_the_memory_if_it_has_a_quarter_as_many_nodes_per_class(per_class: int, mode: str):
    states = []
    for each in ("auto", mode):
        learner = Learner("gcn", "replay", head="growing", per_class=per_class, class_balance=each, epochs=2)
        stream = TaskStream.from_classes(random_graph(n=96, classes=6))
        for task in stream:  # 8 training nodes per class
            learner.observe(task)
        states.append(learner.model.state_dict())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_auto_depends_on_labels_per_class_earlier_classes_and_nodes_that_stay(monkeypatch: pytest.MonkeyPatch):
    stream = TaskStream.from_classes(random_graph(n=96, classes=6))
    learner = Learner("gcn", "replay", head="growing", selector="mf", per_class=2, epochs=1)
    learner.observe(stream[0])
    method = learner.method
    assert isinstance(method, Replay)
    assert method.balance(learner, stream[1]) == "memory"
    again = replace(stream[1], classes=(0, 2, 3))
    assert method.balance(learner, again) == "none"
    corrected = replace(stream[1], train=torch.cat([stream[1].train[1:], method.buffer.nodes[:1]]))
    assert method.balance(learner, corrected) == "logit-adjustment"
    every = replace(stream[1], train=torch.cat([stream[1].train, method.buffer.nodes]))
    assert method.balance(learner, every) == "none"
    for most, mode in ((8, "memory"), (7, "logit-adjustment")):
        monkeypatch.setattr("ergnn.methods.replay.MEMORY_LABELS", most)
        assert method.balance(learner, stream[1]) == mode


@pytest.mark.parametrize("head", ["shared", "per-task"])
def test_other_heads_are_never_balanced(head: str):
    states = [balanced(mode, head)[0].model.state_dict() for mode in ("auto", "none")]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
    with pytest.raises(InputError, match="class_balance is 'ace', which requires head 'growing'"):
        balanced("ace", head)


class Smoothed(Replay):
    """Replay with label smoothing."""

    def loss(self, logits, targets, extras):
        return F.cross_entropy(logits, targets, reduction="none", label_smoothing=0.2)


@pytest.mark.parametrize("balance", ["none", "logit-adjustment", "ace", "memory"])
def test_the_loss_of_a_subclass_is_used_with_every_balance(balance: str):
    stream = TaskStream.from_classes(random_graph(n=48, classes=4))
    losses = []
    for kind in (Smoothed, Replay):
        learner = Learner("gcn", kind(selector="mf", class_balance=balance), head="growing", epochs=1)
        learner.observe(stream[0])
        examples = begin(learner, stream[1])[1]
        logits = torch.randn(len(examples), 4, generator=torch.Generator().manual_seed(0))
        losses.append(examples.losses(logits))
        shifted = logits + examples.extras["shift"] if balance in ("logit-adjustment", "ace") else logits
        smoothing = 0.2 if kind is Smoothed else 0.0
        expected = F.cross_entropy(shifted, examples.targets, reduction="none", label_smoothing=smoothing)
        assert torch.equal(losses[-1], expected)
    assert not torch.allclose(*losses)
