"""Influence is a forecast of leave-one-out retraining: held against the real thing on the bundled Cora, task 1."""

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import pearsonr, spearmanr
from torch import Tensor

from ergnn.data import Graph, Task, make_stream
from ergnn.engine.objective import make_objective
from ergnn.learning.learner import Learner
from ergnn.learning.observing import begin
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import SELECTORS
from graphs import dense_powers
from nn.cases import train

L2 = 1e-3


@pytest.fixture(scope="module")
def task() -> Task:
    return make_stream("cora", split="seeded").stream[0]


def smoothed(graph: Graph) -> Tensor:
    """``S² X`` by dense matrices, and a column of ones for the bias."""
    return F.pad(dense_powers(graph, 2), (0, 1), value=1.0)


def minimum(x: Tensor, y: Tensor, weights: Tensor, start: Tensor) -> Tensor:
    """Softmax regression with ``λ/2 ‖θ‖²``, by Newton's method to convergence."""

    def loss(theta: Tensor) -> Tensor:
        return (weights * F.cross_entropy(x @ theta, y, reduction="none")).sum() + L2 / 2 * theta.square().sum()

    theta = start
    for _ in range(30):
        slope = torch.func.grad(loss)(theta).flatten()
        if float(slope.abs().max()) < 1e-12:
            break
        p = torch.softmax(x @ theta, 1)
        inner = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
        h = torch.einsum("n,ni,nab,nj->iajb", weights, x, inner, x).reshape(slope.numel(), -1)
        step = torch.linalg.solve(h + L2 * torch.eye(slope.numel(), dtype=h.dtype), slope)
        theta = theta - step.view_as(theta)
    assert float(slope.abs().max()) < 1e-10, "not converged"
    return theta


def test_influence_forecasts_leave_one_out_retraining_of_a_convex_model(task: Task, record_property):
    x, n = smoothed(task.graph), task.train.numel()
    basis = torch.linalg.qr(x[task.train].T).Q  # the minimum lies in the span of the training nodes
    own, target, y = x[task.train] @ basis, x[task.val] @ basis, task.targets(task.train)

    def validation_loss(theta: Tensor) -> float:
        return float(F.cross_entropy(target @ theta, task.targets(task.val), reduction="sum"))

    equal = torch.full((n,), 1 / n, dtype=torch.float64)
    full = minimum(own, y, equal, torch.zeros(n, 2, dtype=torch.float64))
    change = []
    for i in range(n):
        without = equal.clone()
        without[i] = 0.0
        change.append(validation_loss(minimum(own, y, without, full)) - validation_loss(full))

    learner = Learner("sgc", "finetune", weight_decay=L2)
    _, trained_on = begin(learner, task)
    head = learner.model.double().heads[0]
    with torch.no_grad():
        head.weight.copy_((basis @ full)[:-1].T)
        head.bias.copy_((basis @ full)[-1])
    context = learner.selection_context(task, trained_on, 1, False)
    scores = SELECTORS.create("im", damping=0.0, tolerance=1e-8, max_iterations=1000).score(context)

    correlation = pearsonr(scores.numpy(), change).statistic
    record_property("pearson", float(correlation))
    assert correlation >= 0.95
    true = torch.tensor(change, dtype=torch.float64)
    size = float(scores @ true) / n / float(true @ true)
    assert 0.5 < size < 1.5, "the forecast score/n has the size of the change, not only its order"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dropout", [0.0, 0.6])
def test_the_same_correlation_is_measured_for_gat(task: Task, dropout: float, seed: int, record_property):
    """Forty retrainings from the same initial parameters with the same dropout masks, one node's loss left out of each.

    GAT of the defaults, Adam, L2 5e-4, 200 epochs, per-task head; influence by Gauss-Newton, damping 0.01, on the
    validation nodes. Whatever comes out is the figure: a network is neither convex nor at its minimum.
    """
    n = task.train.numel()
    learners: list[Learner] = []
    examples: list[Examples] = []
    for left_out in range(n + 1):
        learner = Learner("gat", "finetune", weight_decay=5e-4, seed=seed, backbone_options={"dropout": dropout})
        _, all_of_them = begin(learner, task)
        weights = all_of_them.weights.clone()
        weights[left_out:][:1] = 0.0  # in the last of them nothing is left out
        learners.append(learner)
        examples.append(all_of_them.weighted(weights))
    models = [learner.model for learner in learners]
    train(make_objective(models, examples), learners[0].training, [seed] * (n + 1), 0)

    def validation_loss(learner: Learner) -> float:
        objective = make_objective([learner.model], [learner.examples(task.graph, task.val, 0)])
        with torch.no_grad():
            return float(objective.losses(objective.parameters()).double().sum())

    losses = [validation_loss(learner) for learner in learners]
    change = torch.tensor(losses[:n]) - losses[n]
    scores = SELECTORS.create("im").score(learners[n].selection_context(task, examples[n], 1, False))
    pearson, spearman = pearsonr(scores, change).statistic, spearmanr(scores, change).statistic
    record_property("pearson", float(pearson))
    record_property("spearman", float(spearman))
    print(f"GAT, Cora task 1, dropout {dropout}, seed {seed}: Pearson {pearson:.3f}, Spearman {spearman:.3f}")
    assert min(pearson, spearman) > 0.0
