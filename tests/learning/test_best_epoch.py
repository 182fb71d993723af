"""``best_epoch`` and ``network="tuned"``: which parameters a task ends with."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from ergnn import Learner, LearnerConfig, TaskStream
from ergnn.config.errors import InputError
from ergnn.learning.callbacks import EpochCallback
from ergnn.learning.observing import observe_together
from ergnn.learning.resolve import resolve
from graphs import random_graph

SETTINGS: dict[str, Any] = {"backbone": "gcn", "lr": 0.05, "epochs": 12, "head": "growing"}


@pytest.fixture(scope="module")
def stream() -> TaskStream:
    return TaskStream.from_classes(random_graph(n=90, f=6, classes=6, p_edge=0.06, seed=1), edges="seen")


def assert_same_model(one: Learner, other: Learner) -> None:
    for name, value in one.model.state_dict().items():
        assert "num_batches" in name or torch.equal(other.model.state_dict()[name], value), name


@pytest.mark.parametrize(
    "changed",
    [{}, {"backbone_options": {"norm": "batch"}}, {"method": "pdgnn-tem", "backbone": "mlp", "lr": 0.003}],
    ids=["fields", "whole graph with running statistics", "propagated features"],
)
def test_a_task_ends_with_the_first_of_its_best_epochs(stream: TaskStream, changed: dict[str, Any]) -> None:
    settings: dict[str, Any] = {**SETTINGS, "method": "replay", **changed}
    learner = Learner(**settings, best_epoch=True)
    for task in stream[:2]:
        ends = [Learner(**{**settings, "epochs": epochs}) for epochs in range(1, 13)]
        for end in ends:
            end.load_state_dict(learner.state_dict())
            end.observe(task)
        accuracy = [end.evaluate(task, "val") for end in ends]
        best = accuracy.index(max(accuracy))
        assert best < 11, "the last epoch is the best one, so that the test shows nothing"
        assert_same_model(learner.observe(task), ends[best])


def test_a_resumed_task_ends_with_the_same_epoch(stream: TaskStream) -> None:
    states: list[dict[str, Any]] = []
    keep = EpochCallback(lambda progress: states.append(progress.state_dict()))
    whole = Learner(**SETTINGS, best_epoch=True).observe(stream[0], callbacks=[keep])
    for state in states[:-1]:  # before and after the best epoch
        assert_same_model(Learner(**SETTINGS, best_epoch=True).observe(stream[0], resume=state), whole)


def test_learners_side_by_side_keep_the_epochs_of_each_alone(stream: TaskStream) -> None:
    together = [Learner(**SETTINGS, best_epoch=True, seed=seed) for seed in range(3)]
    observe_together(together, [stream[0]] * 3)
    for seed, learner in enumerate(together):
        assert_same_model(Learner(**SETTINGS, best_epoch=True, seed=seed).observe(stream[0]), learner)


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
