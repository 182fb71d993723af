"""With dropout on, the fast path and plain PyG draw different masks; their results follow the same distribution."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import ks_2samp, ttest_ind

from ergnn.bench.plain import PlainLearner
from ergnn.data import make_stream
from ergnn.learner import Learner
from ergnn.observing import observe_together

SEEDS = 30


@pytest.mark.slow
@pytest.mark.parametrize("backbone", ["gat", "gcn"])
def test_results_over_30_seeds_do_not_differ_from_plain_pyg(backbone: str) -> None:
    torch.set_num_threads(1)
    task = make_stream("cora", split="seeded", inter_task_edges="own").stream[1]
    first = make_stream(
        "cora", split="seeded", inter_task_edges="own", class_order=[*task.classes, 0, 1, 4, 5, 6]
    ).stream[0]
    ours = [Learner(backbone, "finetune", head="shared", weight_decay=5e-4, seed=s, epochs=40) for s in range(SEEDS)]
    observe_together(ours, [first] * SEEDS)
    fast = [learner.evaluate(first) for learner in ours]
    plain = []
    for seed in range(SEEDS):
        peer = PlainLearner(backbone, first.graph.num_features, 2, epochs=40, seed=1000 + seed)
        peer.observe(first, select=False)
        plain.append(peer.evaluate(first, first))
    assert ks_2samp(fast, plain).pvalue > 0.01
    assert ttest_ind(fast, plain, equal_var=False).pvalue > 0.01
