"""CaT: what condensed nodes match, and training on them against a plain loop."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.engine.propagation import propagate
from ergnn.methods.graph_memory import CaT, condense
from ergnn.nn.heads import HEADS
from methods.plain_loop import EPOCHS, LR, PlainGCN, assert_same_parameters, learned, make_tasks


def rows(*sizes: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, 5, generator=generator, dtype=torch.float64) + i for i, size in enumerate(sizes)]


def test_class_means_equal_the_real_ones_where_the_encoder_is_linear() -> None:
    generator = torch.Generator().manual_seed(1)
    real = [torch.rand(size, 5, generator=generator, dtype=torch.float64) + i + 1 for i, size in enumerate((7, 9, 4))]
    weight = torch.zeros(5, 3, dtype=torch.float64)  # orthonormal columns, positive outputs
    weight[[0, 1, 2, 3], [0, 1, 1, 2]] = torch.tensor([1.0, 0.6, 0.8, 1.0], dtype=torch.float64)
    start = torch.rand(3, 2, 5, generator=generator, dtype=torch.float64) + 2.0
    x = condense(real, start, lambda: weight, steps=60, lr=0.8 * 3)
    expected = torch.stack([h.mean(0) for h in real]) @ weight
    torch.testing.assert_close((x @ weight).mean(1), expected, rtol=0, atol=1e-6)
    rest = torch.eye(5, dtype=torch.float64) - weight @ weight.T
    torch.testing.assert_close(x @ rest, start @ rest)  # what the encoder does not see is not changed


@pytest.mark.parametrize("per_class", [1, 3])
def test_a_step_follows_the_gradient(per_class: int) -> None:
    real, generator = rows(7, 9, 4), torch.Generator().manual_seed(1)
    weight = torch.randn(5, 6, generator=generator, dtype=torch.float64)
    start = torch.randn(3, per_class, 5, generator=generator, dtype=torch.float64)
    kept, point = start.clone(), start.clone().requires_grad_()
    wanted = torch.stack([(torch.relu(h @ weight) / 6**0.5).mean(0) for h in real])
    (0.5 * ((torch.relu(point @ weight) / 6**0.5).mean(1) - wanted).square().sum()).backward()
    assert point.grad is not None
    found = condense(real, start, lambda: weight, steps=1, lr=0.3)
    torch.testing.assert_close(found, kept - 0.3 * per_class * point.grad)
    assert torch.equal(start, kept)


def test_random_encoders_match_more_than_the_mean() -> None:
    real, generator = rows(30, 30), torch.Generator().manual_seed(1)

    def draw() -> Tensor:
        return torch.randn(5, 64, generator=generator, dtype=torch.float64)

    start = torch.stack([h.mean(0).expand(4, 5) + 0.1 * h[:4] for h in real])
    start = start + torch.stack([h.mean(0) for h in real]).unsqueeze(1) - start.mean(1, keepdim=True)
    x = condense(real, start, draw, steps=200, lr=0.3)
    probe = torch.randn(5, 5000, generator=generator, dtype=torch.float64)
    wanted = torch.stack([torch.relu(h @ probe).mean(0) for h in real])
    before, after = ((torch.relu(each @ probe).mean(1) - wanted).square().mean() for each in (start, x))
    assert float(after) < 0.2 * float(before)


@pytest.mark.parametrize("head", HEADS)
def test_the_network_is_trained_on_the_memory_only(head: str) -> None:
    tasks = make_tasks()
    learner = learned("cat", head, tasks, per_class=3, steps=5)
    assert isinstance(learner.method, CaT)
    memory = list(zip(range(3), learner.method.x, learner.method.y, strict=True))
    model = PlainGCN(tasks, head)  # new parameters; only the last task counts
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    alone = torch.empty(2, 0, dtype=torch.long)
    for _ in range(EPOCHS):
        losses = []
        for number, x, y in memory:
            h = torch.relu(model.conv(x, alone))
            if head == "growing":
                scores = torch.cat([layer(h, alone) for layer in model.heads], dim=1)
            else:
                scores = model.heads[0 if head == "shared" else number](h, alone)
            targets = y - 2 * number + (2 * number if head == "growing" else 0)
            losses.append(F.cross_entropy(scores, targets, reduction="none"))
        optimizer.zero_grad()
        torch.cat(losses).mean().backward()
        optimizer.step()
    assert_same_parameters(learner, model)


def test_without_steps_the_memory_has_the_class_means_of_propagated_features() -> None:
    tasks = make_tasks()
    method = learned("cat", "growing", tasks, per_class=2, steps=0).method
    assert isinstance(method, CaT)
    for task, x, y in zip(tasks, method.x, method.y, strict=True):
        for c in task.classes:
            members = task.train[task.graph.y[task.train] == c]
            torch.testing.assert_close(x[y == c].mean(0), propagate(task.graph, 2, nodes=members).mean(0))
    assert method.nbytes == 12 * (8 * 4 + 8)
