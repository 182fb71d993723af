"""Kernels against explicit loops, and the dual form of a head."""

import numpy as np
import pytest
import torch

from ergnn import Learner
from ergnn.analytic import kernels
from ergnn.analytic.kernels import Kernel
from ergnn.analytic.ridge import class_weights
from ergnn.config.errors import InputError
from ergnn.data import TaskStream
from graphs import random_graph


@pytest.mark.parametrize("s", [0.0, 0.7, 2.0])
def test_kernels_equal_explicit_loops(s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ROW_BLOCK", 3)
    generator = torch.Generator().manual_seed(0)
    u, v = (torch.randn(n, 4, dtype=torch.float64, generator=generator) for n in (8, 5))
    for one, two in ((u, v), (u, u), (v, u)):
        expected = [
            [float(a @ b) if s == 0 else np.exp(-(s**2) * float((a - b) @ (a - b)) / 2) for b in two] for a in one
        ]
        np.testing.assert_allclose(Kernel(s)(one, two).numpy(), np.array(expected), atol=1e-12)
        assert Kernel(s)(one.float(), two.float()).dtype == torch.float64
    assert str(Kernel(1.4)) == "rbf(s=1.4)"
    assert (str(Kernel()), Kernel().name, Kernel(1.0).name) == ("linear", "linear", "rbf")
    with pytest.raises(InputError, match="s is -1"):
        Kernel(-1.0)


def test_the_dual_form_gives_the_scores_of_the_head() -> None:
    stream = TaskStream.from_classes(random_graph(n=60, classes=4), classes_per_task=4)
    learner = Learner("sgc", "analytic", head="growing").observe(stream[0])
    head, graph, nodes = learner.method, stream[0].graph, torch.arange(60)
    dual = head.label_effects(graph)
    root = class_weights(dual.labels).sqrt()
    system = root[:, None] * dual.kernel(dual.rows, dual.rows) * root + dual.lam * torch.eye(len(root))
    y = (dual.labels[:, None] == dual.classes).double()
    right = dual.kernel(head.rows(graph, nodes), dual.rows) * root
    scores = right @ torch.linalg.solve(system, root[:, None] * y)
    expected = head.head_scores(graph, nodes, dual.classes)
    torch.testing.assert_close(head.solution.temperature * scores, expected, rtol=0, atol=1e-6)
