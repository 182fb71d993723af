"""LwF against a plain PyTorch loop, and its gradients and curvature."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.data import Task
from ergnn.engine.curvature import flatten, gauss_newton_product
from ergnn.engine.objective import make_objective
from ergnn.learning.observing import begin
from ergnn.nn.heads import HEADS
from methods.plain_loop import (
    PlainGCN,
    assert_same_parameters,
    learn_plainly,
    learned,
    make_learner,
    make_tasks,
)

ALPHA, HEAT = 1.5, 2.0


def plain_loss(model: PlainGCN, before: PlainGCN, task: Task) -> Tensor:
    train = task.train
    total = F.cross_entropy(model.scores(task, task.id)[train], model.targets(task, train))
    numbers = range(task.id) if model.kind == "per-task" else range(min(task.id, 1))
    for number in numbers:
        columns = 2 * task.id if model.kind == "growing" else 2
        new = model.scores(task, number)[train, :columns] / HEAT
        old = before.scores(task, number)[train, :columns].detach() / HEAT
        total = total - ALPHA * HEAT**2 * (old.softmax(1) * new.log_softmax(1)).sum(1).mean()
    return total


@pytest.mark.parametrize("head", HEADS)
def test_parameters_equal_a_plain_loop(head: str) -> None:
    tasks = make_tasks()
    learner = learned("lwf", head, tasks, alpha=ALPHA, temperature=HEAT)
    assert_same_parameters(learner, learn_plainly(tasks, head, plain_loss))
    assert not torch.equal(
        flatten(dict(learner.model.named_parameters())),
        flatten(dict(learned("finetune", head, tasks).model.named_parameters())),
    )


def test_gauss_newton_products_use_the_distillation_loss() -> None:
    """Compare with ``Σ Jᵀ ∇²ℓ J`` from explicit matrices."""
    tasks = make_tasks()
    learner = make_learner("lwf", "growing").observe(tasks[0])
    examples = begin(learner, tasks[1])[1]
    objective = make_objective([learner.model], [examples])
    params = {name: value.double() for name, value in objective.parameters().items()}
    shapes = {name: value.shape for name, value in params.items()}

    def scores(vector: Tensor) -> Tensor:
        parts = vector.split([shape.numel() for shape in shapes.values()])
        return objective.logits({name: part.view(shapes[name]) for name, part in zip(shapes, parts, strict=True)})

    vector = flatten(params)
    jacobian = torch.autograd.functional.jacobian(scores, vector)
    logits = scores(vector).detach()
    expected = torch.zeros(vector.numel(), vector.numel(), dtype=torch.float64)
    for i in range(logits.size(0)):

        def loss(z: Tensor, i: int = i) -> Tensor:
            return objective.loss(torch.cat([logits[:i], z.unsqueeze(0), logits[i + 1 :]]))[i]

        inner = torch.autograd.functional.hessian(loss, logits[i])
        expected += float(objective.weights[i]) * jacobian[i].T @ inner @ jacobian[i]
    direction = torch.randn(vector.numel(), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(gauss_newton_product(objective, params)(direction), expected @ direction)
