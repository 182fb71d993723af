"""Learning a task as one transaction: callbacks, custom losses and penalties, failures and interruptions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from ergnn.config.errors import InputError
from ergnn.data import TaskStream
from ergnn.engine.objective import make_objective
from ergnn.learning.callbacks import EpochCallback
from ergnn.learning.learner import Learner
from ergnn.methods.replay import Finetune
from graphs import random_graph


class Normalized(nn.Module):
    """A user-defined network with running statistics."""

    def __init__(self, features: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = GCNConv(features, 6), nn.BatchNorm1d(6), GCNConv(6, 6)

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x, adj)).relu(), adj)


REPLAY = {"selector": "im", "per_class": 2, "replay_batch": 3}


@pytest.mark.parametrize(
    ("method", "head", "options"),
    [
        *(("replay", head, REPLAY) for head in ("growing", "per-task")),
        *(("agem", head, {"sample": 2}) for head in ("growing", "per-task")),
        *((method, head, {}) for method in ("ewc", "si") for head in ("growing", "per-task")),
        ("packnet", "per-task", {}),
        ("piggyback", "per-task", {"init": 0.52}),  # masks change after the first epochs
        ("replay", "growing", {"selector": "mf", "batch_size": 8, "fanout": (4, 3)}),
        *(("replay", "growing", {"optimizer": kind, "batch_size": 6}) for kind in ("adamw", "sgd")),
        ("finetune", "per-task", {"backbone": Normalized(8), "lr": 0.05}),
    ],
)
def test_resuming_a_task_gives_the_same_bits(method: str, head: str, options: dict[str, Any]):
    stream = TaskStream.from_classes(random_graph(n=72, classes=6))
    results = []
    for stop in (None, 1, 4):
        learner = Learner(method=method, head=head, epochs=5, seed=2, **{"backbone": "gat", **options})
        for task in stream:
            states: list[dict[str, Any]] = []

            def keep(progress, states=states, stop=stop):
                states.append(progress.state_dict())
                if progress.epoch == stop:
                    raise KeyboardInterrupt

            if stop is not None:
                with pytest.raises(KeyboardInterrupt):
                    learner.observe(task, callbacks=[EpochCallback(keep)])
            learner.observe(task, resume=states[-1] if states else None)
        results.append(learner.state_dict())
    for again in results[1:]:
        assert all(torch.equal(value, again["model"][name]) for name, value in results[0]["model"].items())
        assert str(again["method"]) == str(results[0]["method"])


class QuadraticPenalty(Finetune):
    """A quadratic penalty on all parameters."""

    def penalty(self, params: dict[str, Tensor]) -> Tensor:
        return 0.05 * sum(value.square().sum() for value in params.values())


@pytest.mark.parametrize("head", ["shared", "per-task"])
def test_a_quadratic_penalty_equals_weight_decay(head: str) -> None:
    stream = TaskStream.from_classes(random_graph(n=48, classes=4))
    options: dict[str, Any] = {"head": head, "epochs": 5, "optimizer": "sgd", "lr": 0.1}
    learners = (
        Learner("gcn", QuadraticPenalty(), weight_decay=0.0, **options),
        Learner("gcn", "finetune", weight_decay=0.1, **options),
    )
    for learner in learners:
        for task in stream:
            learner.observe(task)
    for name, value in learners[0].model.state_dict().items():
        torch.testing.assert_close(learners[1].model.state_dict()[name], value)


class MarginLoss(Finetune):
    """A custom loss: squared difference between the score of the correct output and 1."""

    def loss(self, logits: Tensor, targets: Tensor, extras: Mapping[str, Tensor]) -> Tensor:
        return (logits.gather(1, targets.unsqueeze(1)).squeeze(1) - 1.0).square()


def test_training_influence_and_fisher_information_use_the_loss_of_the_method() -> None:
    task = TaskStream.from_classes(random_graph(n=48, classes=4))[0]
    learner = Learner("gcn", MarginLoss(), epochs=40, lr=0.05, backbone_options={"dropout": 0.0}).observe(task)
    logits = learner.model.eval()(task.graph.dense_x(), task.graph.edge_index)
    right = logits[task.train].gather(1, task.targets(task.train).unsqueeze(1)).squeeze(1)
    assert float((right.detach() - 1.0).square().mean()) < 0.05, "training minimized it"
    context = learner.selection_context(task, learner.method.examples(learner, task), 1, False)
    for examples, nodes in ((context.trained_on, task.train), (context.examples("val"), task.val)):
        objective = make_objective([learner.model], [examples])
        losses = objective.losses(objective.parameters())
        expected = (logits[nodes].gather(1, task.targets(nodes).unsqueeze(1)).squeeze(1) - 1.0).square()
        torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    squared = objective.gradient_sums(objective.parameters())
    own = objective.by_name(squared)["convs.0.bias"]
    bias = learner.model.convs[0].bias
    grads = [torch.autograd.grad(loss, bias, retain_graph=True)[0] for loss in expected]
    torch.testing.assert_close(own, torch.stack(grads).square().sum(0), rtol=1e-4, atol=1e-7)


def test_a_learner_on_the_cpu_does_not_initialize_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    def wake(*args: object) -> None:
        raise AssertionError("a GPU was initialized")

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state", wake)
    stream = TaskStream.from_classes(random_graph(n=48, classes=4))
    Learner("gcn", "finetune", epochs=1).observe(stream[0])
    Learner(Normalized(stream.num_features), "finetune", epochs=1).observe(stream[0])


@pytest.mark.parametrize("part", ["model", "method", "history", "classes"])
def test_loading_an_invalid_state_does_not_change_the_learner(part: str) -> None:
    stream = TaskStream.from_classes(random_graph(n=72, classes=6))
    learner, other = Learner("gcn", epochs=2), Learner("gcn", epochs=2, seed=5)
    learner.observe(stream[0])
    for task in stream[:2]:
        other.observe(task)
    broken = {key: value for key, value in other.state_dict().items() if key != part}
    before, graph = learner.state_dict(), learner.graph
    with pytest.raises(KeyError, match=part):
        learner.load_state_dict(broken)
    assert str(learner.state_dict()) == str(before)
    assert learner.graph is graph
    learner.observe(stream[1])


def test_known_nodes_can_be_relearned_remapped_and_forgotten() -> None:
    stream = TaskStream.from_classes(random_graph(n=72, classes=6))
    learner = Learner("gcn", "replay", selector="mf", per_class=3, epochs=2).observe(stream[0])
    again = replace(stream[0], id=1)
    learner.observe(again)
    assert sorted(part.task for part in learner.method.buffer.experiences) == [1], "selected again, remembered once"
    nodes = learner.method.buffer.nodes
    learner.remap_nodes(lambda ids: ids + 7)
    assert learner.method.buffer.nodes.tolist() == (nodes + 7).tolist()
    assert learner.graph is None, "ids are those of another graph now"
    with pytest.raises(InputError, match="this learner has no graph"):
        learner.predict(nodes, 0)
    learner.set_graph(stream[0].graph)
    assert learner.predict(nodes, 0).shape == nodes.shape
    assert learner.forget_nodes(nodes[:2] + 7) == 2
    assert len(learner.method.buffer) == nodes.numel() - 2
