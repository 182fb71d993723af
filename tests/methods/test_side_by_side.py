"""Learners of one method that learn side by side have the same parameters and memory as single ones, bit for bit."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from ergnn.data import TaskStream
from ergnn.engine.distributed import digest
from ergnn.engine.losses import Objective
from ergnn.engine.step_hooks import StepHook, join_hooks
from ergnn.learning.callbacks import Callback
from ergnn.learning.evaluation import evaluate_streams
from ergnn.learning.learner import Learner
from ergnn.learning.observing import observe_together
from ergnn.methods import episodic
from ergnn.methods.importance import QuadraticPenalty
from ergnn.methods.replay import Finetune, shifted_loss
from ergnn.nn.examples import cross_entropy, loss_key, pure_loss
from graphs import random_graph

EPOCHS = 3


def streams(sparse: bool = True) -> list[TaskStream]:
    """Two seeds share a graph; all differ in their splits."""
    options = {"n": 60, "f": 7, "classes": 6, "p_edge": 0.1, "sparse": sparse}
    graphs = [random_graph(**options, seed=s, directed=s == 1) for s in (0, 1)]
    return [TaskStream.from_classes(graphs[s % 2], split="seeded", split_seed=s) for s in range(3)]


def state_of(learner: Learner) -> dict[str, str]:
    """Hashes of everything that a learner has learned, except times."""
    state = learner.state_dict()
    untimed = [{k: v for k, v in entry.items() if not k.endswith("_seconds")} for entry in state.pop("history")]
    return {name: digest(value) for name, value in {**state, "history": untimed}.items()}


def compare(make: Any, tasks: list[TaskStream]) -> None:
    together, alone = ([make(s) for s in range(len(tasks))] for _ in range(2))
    matrices = evaluate_streams(together, tasks)
    for learner, same, stream, matrix in zip(alone, together, tasks, matrices, strict=True):
        assert evaluate_streams([learner], [stream])[0].to_list() == matrix.to_list()
        assert state_of(same) == state_of(learner)


@pytest.mark.parametrize(
    ("name", "backbone", "head", "options"),
    [
        ("agem", "gat", "growing", {"sample": 3}),
        ("cat", "gcn", "per-task", {"steps": 5}),
        ("continualgnn", "gat", "shared", {}),
        ("derpp", "gin", "growing", {}),
        ("ewc", "gcn", "growing", {"optimizer": "sgd"}),
        ("gem", "gcn", "per-task", {"margin": 0.1, "optimizer": "adamw"}),
        ("icarl", "sage", "growing", {}),
        ("lwf", "gat", "per-task", {}),
        ("packnet", "mlp", "shared", {"optimizer": "sgd"}),
        ("piggyback", "gat", "per-task", {}),
        ("replay", "gat", "growing", {"replay": "ego"}),
        ("si", "mlp", "shared", {"optimizer": "adamw"}),
        ("ssm", "gat", "per-task", {}),
        ("tpp", "gcn", "growing", {}),
        ("twp", "gcn", "growing", {}),
    ],
)
def test_methods_learn_the_same_alone_and_side_by_side(
    name: str, backbone: str, head: str, options: dict[str, Any]
) -> None:
    compare(lambda seed: Learner(backbone, name, head=head, epochs=EPOCHS, seed=seed, **options), streams())


@pytest.mark.parametrize(
    ("backbone", "head", "sparse"),
    [
        ("gat", "growing", True),
        ("gcn", "shared", False),
        ("sage", "per-task", True),
        ("gin", "growing", False),
        ("sgc", "shared", True),
        ("mlp", "per-task", False),
    ],
)
def test_networks_and_selectors_are_the_same_alone_and_side_by_side(backbone: str, head: str, sparse: bool) -> None:
    options = {"head": head, "epochs": EPOCHS, "weight_decay": 5e-4}
    selectors = "mf", "cm*", "im"
    tasks = streams(sparse)
    compare(lambda seed: Learner(backbone, "replay", seed=seed, selector=selectors[seed], **options), tasks)


def test_packnet_may_prune_differently_in_each_learner() -> None:
    """One hook keeps the frozen parameters of all models, and each prunes its own after the step of its own."""
    options = [{"prune": 0.5, "retrain": 0.2}, {"prune": 0.75, "retrain": 0.7}, {"prune": 0.75, "retrain": 0.2}]
    compare(lambda seed: Learner("gcn", "packnet", epochs=6, seed=seed, **options[seed]), streams())


class Anchored(Finetune):
    """A penalty with a factor per learner."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def penalty(self, params: dict[str, Tensor]) -> Tensor | None:
        return self.factor * sum(value.square().sum() for value in params.values()) if self.factor else None  # type: ignore[return-value]


@pytest.mark.parametrize("head", ["shared", "per-task"])
def test_penalties_may_differ_between_learners(head: str) -> None:
    compare(lambda seed: Learner("gcn", Anchored(0.1 * seed), head=head, epochs=EPOCHS, seed=seed), streams())


class Together(Callback):
    """Records the number of models that are trained side by side."""

    def __init__(self) -> None:
        self.models: list[int] = []

    def on_epoch_end(self, learner: Any, progress: Any) -> None:
        self.models.append(progress.losses.numel())


def test_methods_with_hooks_are_trained_side_by_side_by_method() -> None:
    stream, seen = streams()[0], Together()
    learners = [Learner("gcn", name, head="shared", epochs=1) for name in ("ewc", "finetune", "ewc", "replay", "ewc")]
    for task in stream:
        observe_together(learners, [task] * 5, [seen])
    assert seen.models == [3, 3, 3, 2, 2] * 3


class Halves(StepHook):
    """A hook that cannot be stacked: it says nothing about its operations."""

    def before_step(self, params: dict[str, Tensor]) -> None:
        for value in params.values():
            value.grad.mul_(0.5)  # type: ignore[union-attr]


class Halving(Finetune):
    def step_hook(self, learner: Any, task: Any, objective: Objective) -> StepHook:
        return Halves()


def test_models_whose_hooks_cannot_be_stacked_are_trained_alone() -> None:
    seen, task = Together(), streams()[0][0]
    observe_together([Learner("gcn", Halving(), epochs=1, seed=s) for s in range(2)], [task] * 2, [seen])
    assert seen.models == [1, 1]


def test_quadratic_penalties_are_one_hook() -> None:
    params = {"w": torch.arange(6.0).view(2, 3).requires_grad_()}
    optimizer = torch.optim.SGD(params.values(), lr=0.5)
    hooks = [QuadraticPenalty(lam, {"w": torch.ones(1, 3)}, {"w": torch.zeros(1, 3)}) for lam in (2.0, 6.0)]
    joined = join_hooks(hooks)
    assert isinstance(joined, QuadraticPenalty)
    joined.after_step(params, optimizer)
    assert torch.equal(params["w"], torch.tensor([[0.0, 0.5, 1.0], [0.75, 1.0, 1.25]]))
    assert type(join_hooks([None, None])) is type(join_hooks([])) is StepHook


@pytest.mark.parametrize("sample", [2, 256])
@pytest.mark.parametrize("name", ["gem", "agem"])
def test_stacked_projections_are_those_of_each_model(name: str, sample: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU computes all memories in one objective; the order of sums differs, so that results agree to rounding."""
    options = {"optimizer": "sgd", "lr": 0.1, "per_class": 3, "epochs": EPOCHS}

    def learn() -> list[Learner]:
        own_options = [{"sample": sample} if name == "agem" else {"margin": 0.1 * s} for s in range(3)]
        own = [Learner("gcn", name, seed=s, **own_options[s], **options) for s in range(3)]
        evaluate_streams(own, streams())
        return own

    alone, used, stacked = learn(), [], episodic.GradientConstraint.stacked

    def counted(hooks: list[episodic.GradientConstraint]) -> Any:
        joined = stacked(hooks)
        used.append(len(joined.hooks))
        return joined

    monkeypatch.setattr(episodic, "JOINED_ON", ("cpu",))
    monkeypatch.setattr(episodic.GradientConstraint, "stacked", counted)
    for one, same in zip(learn(), alone, strict=True):
        for value, expected in zip(one.model.parameters(), same.model.parameters(), strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)
    assert set(used) == {3}


class Scaled(Finetune):
    """A loss that depends on an option, declared or not."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def loss(self, logits: Tensor, targets: Tensor, extras: Any) -> Tensor:
        return self.factor * super().loss(logits, targets, extras)


class Declared(Scaled):
    @pure_loss("factor")
    def loss(self, logits: Tensor, targets: Tensor, extras: Any) -> Tensor:
        return super().loss(logits, targets, extras)


@dataclass
class Unhashable:
    """A callable loss that cannot be a key."""

    def __call__(self, logits: Tensor, targets: Tensor, extras: Any) -> Tensor:
        return torch.zeros(targets.numel())


class Changed(Declared):
    def loss(self, logits: Tensor, targets: Tensor, extras: Any) -> Tensor:
        return super().loss(logits, targets, extras)


def test_losses_are_joined_if_they_are_known_to_be_the_same() -> None:
    assert loss_key(Declared(2.0).loss) == loss_key(Declared(2.0).loss) is not None
    assert loss_key(Declared(2.0).loss) != loss_key(Declared(3.0).loss)
    assert loss_key(Scaled(2.0).loss) is None
    assert loss_key(Changed(2.0).loss) is None  # another loss, which declares nothing
    assert loss_key(Declared(torch.ones(2)).loss) is None  # type: ignore[arg-type]
    assert loss_key(Unhashable()) is None
    assert loss_key(Finetune().loss) == loss_key(cross_entropy) is not None
    assert loss_key(lambda *_: torch.zeros(0)) is None
    shifted = [partial(shifted_loss, loss=Declared(f).loss) for f in (2.0, 2.0, 3.0)]
    assert loss_key(shifted[0]) == loss_key(shifted[1]) != loss_key(shifted[2])
    assert loss_key(partial(shifted_loss, loss=Scaled(2.0).loss)) is None


@pytest.mark.parametrize("method", [Scaled, Declared])
def test_losses_with_different_options_stay_separate(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Objective, "joins_losses", property(lambda self: self.joint_extras is not None))  # as on a GPU
    compare(lambda seed: Learner("gcn", method(1.0 + seed), epochs=EPOCHS, seed=seed), streams())
