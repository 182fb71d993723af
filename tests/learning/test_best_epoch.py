"""``best_epoch`` and ``network="tuned"``: which parameters a task ends with."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import ergnn
from ergnn import Learner, LearnerConfig, TaskStream
from ergnn.config.errors import InputError
from ergnn.engine.training import TaskProgress
from ergnn.learning.callbacks import Callback
from ergnn.learning.observing import observe_together
from ergnn.learning.resolve import resolve
from graphs import random_graph

SETTINGS: dict[str, Any] = {"backbone": "gcn", "lr": 0.05, "epochs": 12, "head": "growing"}


@pytest.fixture(scope="module")
def stream() -> TaskStream:
    return TaskStream.from_classes(random_graph(n=90, f=6, classes=6, p_edge=0.06, seed=1), edges="seen")


class EveryEpoch(Callback):
    """Keeps the parameters after each epoch, and their validation accuracy on the whole graph."""

    def __init__(self, task: ergnn.Task) -> None:
        self.task, self.accuracy, self.models, self.states = task, [], [], []

    def on_epoch_end(self, learner: Any, progress: TaskProgress) -> None:
        state = progress.state_dict()
        network = learner.new_model(self.task.graph.num_features)
        for width in learner.model.head_widths:
            network.add_head(width)
        if "convs.0.lin.weight" in state["params"]:  # stacked names and transposed matrices
            own = dict(network.named_parameters())
            for name, value in state["params"].items():
                for i, part in enumerate(value):
                    key = name if name.startswith("convs") else name.replace("head.", f"heads.{i}.")
                    own[key].data.copy_(part.t() if part.dim() == 2 else part)
        else:
            network.load_state_dict({**state["params"], **state["buffers"]})
        graph, val = self.task.graph, self.task.val
        network.eval()
        with torch.no_grad():
            scores = [network(graph.dense_x(), graph.edge_index, head)[val] for head in range(len(network.heads))]
        classes = torch.as_tensor(learner.classes(None))
        right = classes[torch.cat(scores, 1).argmax(1)] == graph.y[val]
        self.accuracy.append(float(right.float().mean()))
        self.models.append({name: value.clone() for name, value in network.state_dict().items()})
        self.states.append(state)


@pytest.mark.parametrize("options", [{}, {"norm": "batch"}], ids=["fields", "whole graph with running statistics"])
def test_a_task_ends_with_the_first_of_its_best_epochs(stream: TaskStream, options: dict[str, Any]) -> None:
    learner = Learner(**SETTINGS, method="replay", best_epoch=True, backbone_options=options)
    for task in stream[:2]:
        epochs = EveryEpoch(task)
        learner.observe(task, callbacks=[epochs])
        best = epochs.accuracy.index(max(epochs.accuracy))
        assert best < 11, "the last epoch is the best one, so that the test shows nothing"
        state = learner.model.state_dict()
        for name, value in epochs.models[best].items():
            if "num_batches" not in name:
                assert torch.equal(state[name], value), name


def test_a_resumed_task_ends_with_the_same_epoch(stream: TaskStream) -> None:
    task = stream[0]
    whole, epochs = Learner(**SETTINGS, best_epoch=True), EveryEpoch(task)
    whole.observe(task, callbacks=[epochs])
    best = epochs.accuracy.index(max(epochs.accuracy))
    for start in (best, best + 1, 10):  # before and after the best epoch
        resumed = Learner(**SETTINGS, best_epoch=True).observe(task, resume=epochs.states[start])
        for name, value in whole.model.state_dict().items():
            assert torch.equal(resumed.model.state_dict()[name], value), (start, name)


def test_learners_side_by_side_keep_the_epochs_of_each_alone(stream: TaskStream) -> None:
    together = [Learner(**SETTINGS, best_epoch=True, seed=seed) for seed in range(3)]
    observe_together(together, [stream[0]] * 3)
    for seed, learner in enumerate(together):
        alone = Learner(**SETTINGS, best_epoch=True, seed=seed).observe(stream[0])
        for name, value in alone.model.state_dict().items():
            assert torch.equal(learner.model.state_dict()[name], value), name


def test_joint_training_is_scored_on_the_validation_nodes_of_all_tasks(stream: TaskStream) -> None:
    learner = Learner(**SETTINGS, method="joint", best_epoch=True).observe(stream[0])
    again = Learner(**SETTINGS, method="joint", best_epoch=True)
    again.load_state_dict(learner.state_dict())
    for made in (learner, again):
        made.add_head(stream[1].classes)
        examples = made.method.validation(made, stream[1])
        assert set(examples.nodes.tolist()) == {*stream[0].val.tolist(), *stream[1].val.tolist()}


def test_a_task_without_validation_nodes_is_refused(stream: TaskStream) -> None:
    with pytest.raises(InputError, match=r"best_epoch is set, but task 1 .* has no validation nodes"):
        Learner(**SETTINGS, best_epoch=True).observe(replace(stream[0], val=stream[0].val[:0]))
    with pytest.raises(InputError, match="best_epoch is 3; it must be of type bool"):
        LearnerConfig(best_epoch=3)  # type: ignore[arg-type]


def test_a_tuned_network_fills_in_what_is_not_given() -> None:
    tuned = {"hidden": 256, "layers": 3, "norm": "layer", "residual": True}
    config = LearnerConfig(network="tuned")
    assert (config.backbone, config.lr, config.best_epoch, config.backbone_options) == ("gcn", 1e-3, True, tuned)
    given = LearnerConfig(network="tuned", backbone="gat", lr=0.1, best_epoch=False, backbone_options={"hidden": 64})
    assert (given.backbone, given.lr, given.best_epoch) == ("gat", 0.1, False)
    assert given.backbone_options == {**tuned, "hidden": 64, "heads": 1}
    explicit = LearnerConfig(backbone="gcn", lr=1e-3, best_epoch=True, backbone_options=tuned)
    assert resolve(config) == resolve(explicit)
    with pytest.raises(InputError, match="unknown network 'tunde'"):
        LearnerConfig(network="tunde")
