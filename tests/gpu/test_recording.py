"""Recorded Gauss-Newton products equal those on the CPU, also after everything else was freed."""

import gc

import pytest
import torch

import ergnn.engine.adjacency
from ergnn.data import make_stream
from ergnn.engine.curvature import Curvature, gauss_newton_product
from ergnn.engine.hardware import Recorded, side_stream
from ergnn.engine.objective import make_objective
from ergnn.learning.learner import Learner

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


@pytest.mark.parametrize("linked_from", [1, 10**9], ids=["linked", "blocks"])
@pytest.mark.parametrize("backbone", ["gat", "gcn", "sage", "gin", "sgc"])
def test_recorded_products_equal_those_on_the_cpu(
    backbone: str, linked_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ergnn.engine.adjacency, "LINKED_FROM", linked_from)
    stream = make_stream("cora", split="seeded", edges="own").stream
    learner = Learner(backbone, "finetune", epochs=5).observe(stream[0])
    state, found = learner.model.state_dict(), {}
    for device in ("cpu", "cuda"):
        task = stream.to(device)[0]
        other = Learner(backbone, "finetune", epochs=5, device=device).observe(task)
        other.model.load_state_dict(state)
        objective = make_objective([other.model], [other.examples(task.graph, task.train, 0).weighted(1 / 40)])
        params = objective.parameters()
        size = sum(value.numel() for value in params.values())
        vectors = torch.randn(3, size, generator=torch.Generator().manual_seed(0)).to(device)
        product, curvature = gauss_newton_product(objective, params), Curvature(objective, params, tolerance=1e-5)
        scores = curvature.influence(vectors[0])[0][0].cpu()
        del objective, curvature, other
        if device == "cuda":
            gc.collect()
            torch.cuda.empty_cache()
            torch.full((50_000_000,), float("nan"), device="cuda")  # overwrites what was freed
        found[device] = [product(vector).cpu() for vector in vectors], scores
    for got, expected in zip(found["cuda"][0], found["cpu"][0], strict=True):  # the first is not yet replayed
        assert float((got - expected).norm()) <= 1e-4 * float(expected.norm())
    assert float((found["cuda"][1] - found["cpu"][1]).norm()) <= 1e-3 * float(found["cpu"][1].norm())


def test_only_the_first_call_of_a_recorded_function_runs_it() -> None:
    calls = []

    def double(value: torch.Tensor) -> torch.Tensor:
        calls.append(len(calls))
        return 2 * value

    recorded = Recorded(double, side_stream(torch.device("cuda", 0)))
    for value in (1.0, 5.0, -3.0):
        assert recorded(torch.full((4,), value, device="cuda")).tolist() == [2 * value] * 4
    assert calls == [0, 1]  # once to compute the first result, once to record


def test_cached_memory_is_freed_if_a_recording_does_not_fit() -> None:
    """A recording cannot use cached blocks; PyTorch does not free them while it records."""
    total, size = torch.cuda.get_device_properties(0).total_memory, 2**28

    def add(value: torch.Tensor) -> torch.Tensor:  # two tensors of 2^28 bytes
        return (torch.zeros(size // 4, device="cuda") + value).max()

    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 3 * size) / total)
    try:
        recorded = Recorded(add, side_stream(torch.device("cuda", 0)))
        assert [float(recorded(torch.full((1,), value, device="cuda"))) for value in (1.0, 2.0, 3.0)] == [1, 2, 3]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("error", [ValueError, torch.OutOfMemoryError])
def test_a_failed_recording_leaves_a_usable_stream(error: type[Exception]) -> None:
    side, calls = side_stream(torch.device("cuda", 0)), []

    def fail(value: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise error("raised by the function")
        return 2 * value

    with pytest.raises(error, match="raised by the function"):
        Recorded(fail, side)(torch.ones(4, device="cuda"))
    assert len(calls) == (3 if error is torch.OutOfMemoryError else 2)  # recorded again with more memory
    with torch.cuda.stream(side):
        assert not torch.cuda.is_current_stream_capturing()
    recorded = Recorded(lambda value: 2 * value, side)
    assert [float(recorded(torch.full((), value, device="cuda"))) for value in (1.0, 2.0, 3.0)] == [2, 4, 6]
