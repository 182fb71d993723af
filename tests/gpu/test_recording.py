"""A recorded Gauss-Newton product equals a plain one, also after everything else was freed."""

from __future__ import annotations

import gc

import pytest
import torch

import ergnn.engine.adjacency
from ergnn.curvature import _gauss_newton_product, gauss_newton_product
from ergnn.data import make_stream
from ergnn.engine.objective import make_objective
from ergnn.learner import Learner

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


def test_a_recorded_product_equals_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ergnn.engine.adjacency, "LINKED_FROM", 1)
    task = make_stream("cora", split="seeded").stream.to("cuda")[0]
    learner = Learner("gat", "finetune", device="cuda", epochs=5).observe(task)
    objective = make_objective([learner.model], [learner.examples(task.graph, task.train, 0)])
    params = objective.parameters()
    size = sum(value.numel() for value in params.values())
    vectors = torch.randn(3, size, generator=torch.Generator().manual_seed(0)).cuda()
    plain = _gauss_newton_product(objective, params)
    expected = [plain(vector) for vector in vectors]
    recorded = gauss_newton_product(objective, params)
    del objective, plain
    gc.collect()
    torch.cuda.empty_cache()
    torch.full((50_000_000,), float("nan"), device="cuda")  # overwrites what was freed
    for vector, value in zip(vectors, expected, strict=True):
        torch.testing.assert_close(recorded(vector), value, rtol=1e-5, atol=1e-7)
    assert recorded.__name__ == "replay"
