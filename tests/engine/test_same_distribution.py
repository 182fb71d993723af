"""With dropout, the engine and plain PyG use different masks, but their results have the same distribution."""

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import ks_2samp, ttest_ind

from benchmarks.plain import PlainLearner
from ergnn.data import Task, make_stream
from ergnn.learning.learner import Learner
from ergnn.learning.observing import observe_together

SEEDS = 30
LEVEL = 0.05 / 20
"""5 % for all: two tests of two figures of five backbones."""
OPTIONS = {"sage": {"dropout": 0.5}}
"""GraphSAGE has no dropout by default, here it has; SGC has nothing to drop, and differs by initial values only."""


def first_task() -> Task:
    """Return Cora's second pair of classes as the first task; it is harder than the first pair."""
    classes = make_stream("cora", split="seeded").stream[1].classes
    order = [*classes, *(c for c in range(7) if c not in classes)]
    return make_stream("cora", split="seeded", edges="own", class_order=order).stream[0]


def figures(logits: torch.Tensor, target: torch.Tensor) -> tuple[float, float]:
    """Return the accuracy, rounded so that equal values compare equal, and the mean loss."""
    return round(float((logits.argmax(1) == target).double().mean()), 6), float(F.cross_entropy(logits, target))


def ours(backbone: str, task: Task, epochs: int) -> list[tuple[float, float]]:
    options = {"head": "shared", "weight_decay": 5e-4, "epochs": epochs, "backbone_options": OPTIONS.get(backbone)}
    learners = [Learner(backbone, "finetune", seed=s, **options) for s in range(SEEDS)]
    observe_together(learners, [task] * SEEDS)
    x, edges = task.graph.dense_x(), task.graph.edge_index
    with torch.no_grad():  # scores, since the log of probabilities that round to 0 is infinite
        scores = [learner.model.eval()(x, edges, 0)[task.test] for learner in learners]
    return [figures(logits, task.targets(task.test)) for logits in scores]


def plain(backbone: str, task: Task, epochs: int) -> list[tuple[float, float]]:
    found = []
    for seed in range(SEEDS):
        peer = PlainLearner(backbone, task.graph.num_features, 2, epochs=epochs, seed=1000 + seed)
        peer.model.dropout = OPTIONS.get(backbone, {}).get("dropout", getattr(peer.model, "dropout", 0.0))
        peer.observe(task, select=False)
        with torch.no_grad():
            logits = peer.model.eval()(task.graph.dense_x(), task.graph.edge_index)[task.test]
        found.append(figures(logits, task.targets(task.test)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["gat", "gcn", "sage", "gin", "sgc"])
def test_results_over_30_seeds_match_plain_pyg(backbone: str) -> None:
    torch.set_num_threads(1)
    task = first_task()
    for name, fast, slow in zip(
        ("accuracy", "loss"),
        zip(*ours(backbone, task, 40), strict=True),
        zip(*plain(backbone, task, 40), strict=True),
        strict=True,
    ):
        same, mean = ks_2samp(fast, slow).pvalue, ttest_ind(fast, slow, equal_var=False).pvalue
        means = f"{sum(fast) / SEEDS:.4f} and {sum(slow) / SEEDS:.4f}"
        print(f"{backbone} {name}: {means}, KS p = {same:.3f}, t p = {mean:.3f}")
        assert same > LEVEL
        assert mean > LEVEL or max(fast) - min(fast) == max(slow) - min(slow) == 0.0
