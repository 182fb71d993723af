import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.engine.objective import make_objective
from ergnn.engine.step_hooks import StepHook
from ergnn.engine.training import MiniBatches, Training
from ergnn.nn.backbones import BACKBONES, Backbone
from ergnn.nn.examples import Examples
from graphs import random_graph
from nn.cases import assert_near, labeled, model_of, train

STEPS = 20
SETTINGS = {
    "adam with L2": Training(STEPS, lr=0.05, weight_decay=5e-2, optimizer="adam"),
    "adamw": Training(STEPS, lr=0.05, weight_decay=5e-1, optimizer="adamw"),
    "sgd with L2": Training(STEPS, lr=0.1, weight_decay=5e-2, optimizer="sgd"),
}


def examples_in(seed: int, dtype: torch.dtype = torch.float64, sparse: bool = False) -> Examples:
    graph = random_graph(n=30, seed=seed, dtype=dtype, sparse=sparse, directed=seed % 2 == 1)
    return labeled(graph, [0, 3, 8, 21, 8, 4 + seed], [[0]] * 6, [3, 3], seed)


def plain_training(model: Backbone, examples: Examples, training: Training) -> None:
    """Train with a standard PyG loop; the second head is unused, so it must not decay."""
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    optimizer = kinds[training.optimizer](model.parameters(), lr=training.lr, weight_decay=training.weight_decay)
    x = examples.graph.dense_x().to(next(model.parameters()).dtype)
    model.train()
    for _ in range(training.epochs):
        optimizer.zero_grad()
        out = model(x, examples.graph.edge_index)[examples.nodes]
        loss = F.cross_entropy(out, examples.targets, reduction="none")
        (examples.weights * loss).sum().backward()
        optimizer.step()


def assert_same_parameters(one: torch.nn.Module, other: torch.nn.Module, tolerance: float) -> None:
    expected = dict(other.named_parameters())
    for name, value in one.named_parameters():
        assert_near(value, expected[name], tolerance)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("gat", "adam with L2"), ("gat", "adamw"), ("gat", "sgd with L2")]
    + [(name, "adam with L2") for name in ("gcn", "gin", "mlp", "sage", "sgc")],
)
def test_training_equals_a_plain_loop_with_pyg(name: str, settings: str) -> None:
    examples = examples_in(1)
    model = model_of(name, 8, [3, 3], seed=4)
    start, plain = copy.deepcopy(model), copy.deepcopy(model)
    train(make_objective([model], [examples]), SETTINGS[settings], seeds=[0], task=0)
    plain_training(plain, examples, SETTINGS[settings])
    assert_same_parameters(model, plain, 1e-7)
    moved = torch.cat([(a - b).detach().flatten() for a, b in zip(model.parameters(), start.parameters(), strict=True)])
    assert float(moved.abs().max()) > 0.1
    for value, old in zip(model.heads[1].parameters(), start.heads[1].parameters(), strict=True):
        assert torch.equal(value, old)


def test_epochs_have_different_masks() -> None:
    """With one mask for all epochs, the dropped entries would never be trained on."""
    model = BACKBONES.create("mlp", in_channels=8, out_channels=3, layers=0, dropout=0.9).double()
    before = model.heads[0].weight.detach().clone()
    train(make_objective([model], [examples_in(0)]), Training(60, lr=0.01, optimizer="sgd"), [0], 0)
    assert bool((model.heads[0].weight != before).any(0).all())


def test_only_a_coupled_decay_is_part_of_the_loss() -> None:
    assert Training(weight_decay=0.1, optimizer="adam").l2 == 0.1
    assert Training(weight_decay=0.1, optimizer="sgd").l2 == 0.1
    assert Training(weight_decay=0.1, optimizer="adamw").l2 == 0.0


# --- mini-batches ----------------------------------------------------------------------------------------


def example_rows(name: str, heads: int = 1) -> tuple[Backbone, Examples]:
    graph = random_graph(n=40, seed=2, dtype=torch.float64)
    nodes = torch.randperm(40, generator=torch.Generator().manual_seed(0))[:23].tolist()
    place = [[i % heads] for i in range(23)]
    return model_of(name, 8, [3] * heads, seed=4), labeled(graph, nodes, place, [3] * heads, seed=1)


def expected_batches(examples: Examples, size: int, own: int, seed: int, epochs: int) -> list[tuple[Tensor, Tensor]]:
    """Return the positions and weights of the batches as documented, with the same generator."""
    others = torch.arange(own, len(examples))[examples.weights[own:] != 0]
    out = []
    for epoch in range(epochs):
        generator = torch.Generator().manual_seed(seed + epoch * 15_485_863)
        for index in torch.randperm(own, generator=generator).split(size):
            weights = examples.weights[index] * own / len(index)
            if others.numel():
                extra = others[torch.randperm(others.numel(), generator=generator)[:size]]
                weights = torch.cat([weights, examples.weights[extra] * others.numel() / len(extra)])
                index = torch.cat([index, extra])
            out.append((index, weights))
    return out


@pytest.mark.parametrize(("name", "heads", "own"), [("mlp", 1, 23), ("mlp", 2, 14), ("gcn", 1, 14), ("sgc", 2, 23)])
def test_mini_batches_equal_a_plain_loop(name: str, heads: int, own: int) -> None:
    model, examples = example_rows(name, heads)
    plain, start = copy.deepcopy(model), copy.deepcopy(model)
    training = Training(3, lr=0.1, weight_decay=0.01, optimizer="sgd", batch_size=5)
    train(make_objective([model], [examples]), training, seeds=[2], task=1, task_size=own)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, weight_decay=0.01)
    for value in plain.parameters():  # weight decay also applies to heads that a batch does not use
        value.grad = torch.zeros_like(value)
    for index, weights in expected_batches(examples, 5, own, 2 * 1_000_003 + 7919 + 29, epochs=3):
        part = examples[index]
        optimizer.zero_grad(set_to_none=False)
        scores = [plain(part.graph.x, part.graph.edge_index, head) for head in range(heads)]
        out = torch.stack([scores[int(head)][node] for node, head in zip(part.nodes, part.heads, strict=True)])
        (weights * F.cross_entropy(out, part.targets, reduction="none")).sum().backward()
        optimizer.step()
    assert_same_parameters(model, plain, 1e-6)
    with pytest.raises(AssertionError):
        assert_same_parameters(model, start, 1e-2)


def test_an_epoch_uses_each_example_of_the_task_once_and_none_of_weight_zero() -> None:
    model, examples = example_rows("mlp")
    weights = torch.cat([torch.full((14,), 0.5 / 14), torch.full((6,), 0.5 / 6), torch.zeros(3)])
    objective = make_objective([model], [examples.weighted(weights)])
    whole = objective.losses(objective.parameters())
    batches = MiniBatches(objective, 4, 14, seed=0)
    assert len(batches) == 4
    orders = []
    for epoch in range(2):
        seen = []
        for batch in batches.of_epoch(epoch):
            own = batch.targets.numel() - 4  # the batch size is also the number of other examples
            assert own in (4, 2)
            assert float(batch.weights[:own].sum()) == pytest.approx(0.5)
            assert float(batch.weights[own:].sum()) == pytest.approx(0.5)
            losses = batch.losses(objective.parameters())
            places = [int((whole - loss).abs().argmin()) for loss in losses]
            assert torch.allclose(whole[places], losses)
            assert all(14 <= place < 20 for place in places[own:])
            seen += places[:own]
        assert sorted(seen) == list(range(14))
        orders.append(seen)
    assert orders[0] != orders[1]


@pytest.mark.parametrize("name", ["gat", "gin", "mlp", "sgc"])
def test_scores_of_a_batch_equal_scores_of_all_examples(name: str) -> None:
    model, examples = example_rows(name)
    objective = make_objective([model], [examples])
    index = torch.tensor([3, 0, 17])
    batch = objective.batch(index, torch.tensor([1.0, 2.0, 3.0])).batch(torch.tensor([2, 1]))
    params = objective.parameters()
    assert_near(batch.logits(params), objective.logits(params)[[17, 0]], 1e-12)
    assert batch.weights.tolist() == [3.0, 2.0]
    assert batch.targets.tolist() == examples.targets[[17, 0]].tolist()
    assert {key: value.shape for key, value in batch.parameters().items()} == {k: v.shape for k, v in params.items()}


@pytest.mark.parametrize("name", ["gat", "gin", "sgc"])
def test_parameters_convert_to_the_names_of_the_model_and_back(name: str) -> None:
    model = model_of(name, 8, [3, 2], seed=4)
    examples = labeled(random_graph(n=30, dtype=torch.float64), [0, 3, 8], [[0], [1], [0]], [3, 2], 1)
    objective = make_objective([model], [examples])
    params = objective.parameters()
    named = objective.by_name(params)
    expected = dict(model.named_parameters())
    assert named.keys() == expected.keys()
    assert all(torch.equal(value, expected[key]) for key, value in named.items())
    back = objective.from_names(named)
    assert all(torch.equal(value, params[key]) for key, value in back.items())
    assert all(float(value.abs().max()) == 0.0 for value in objective.from_names({}).values())


def test_mini_batches_require_one_model() -> None:
    models = [model_of("mlp", 8, [3], seed=s) for s in range(2)]
    with pytest.raises(InputError, match="2 are trained side by side"):
        train(make_objective(models, [examples_in(0)] * 2), Training(1, batch_size=2), [0, 1], 0)
    with pytest.raises(InputError, match="batch_size is 0"):
        Training(batch_size=0)


def test_a_hook_is_called_before_and_after_every_step() -> None:
    """The hook receives the gradient before the step, can change it, and receives the parameters after the step."""
    events: list[str] = []

    class HalvedGradient(StepHook):
        def before_step(self, params: dict[str, Tensor]) -> None:
            events.append("before")
            for value in params.values():
                value.grad.mul_(0.5)

        def after_step(self, params: dict[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
            events.append("after")

        def between_steps(self, params: dict[str, Tensor]) -> None:
            events.append("between")

    model, examples = example_rows("gcn")
    slow = copy.deepcopy(model)
    training = Training(4, lr=0.2, weight_decay=0.0, optimizer="sgd")
    train(make_objective([model], [examples]), training, [0], 0, hooks=[HalvedGradient()])
    train(make_objective([slow], [examples]), replace(training, lr=0.1), [0], 0)
    assert events == ["before", "after", "between"] * 4
    assert_same_parameters(model, slow, 1e-9)


def test_a_state_of_a_different_training_is_refused() -> None:
    states: list[dict[str, Any]] = []
    model, examples = example_rows("gat")
    objective = make_objective([model], [examples])
    train(objective, Training(3), [0], 0, lambda now: states.append(now.state_dict()))
    with pytest.raises(InputError, match="is at epoch 3; epochs must be 0 to 2"):
        train(objective, Training(2), [0], 0, resume=states[-1])
    other, examples = example_rows("gcn")
    with pytest.raises(InputError, match="has different parameters"):
        train(make_objective([other], [examples]), Training(3), [0], 0, resume=states[0])
