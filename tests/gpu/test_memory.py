"""Memory on a GPU: budgets and stored outputs."""

import pytest
import torch

from ergnn.data import TaskStream, make_stream
from ergnn.learning.learner import Learner

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


def cora() -> TaskStream:
    return make_stream("cora", split="seeded").stream


@pytest.mark.parametrize("replay", ["live", "isolated", "ego"])
@pytest.mark.parametrize("budget", [{"budget_nodes": 5}, {"budget_bytes": 100}])
def test_budgets_evict_the_same_nodes_as_on_the_cpu(replay: str, budget: dict[str, int]) -> None:
    kept = []
    for device in ("cpu", "cuda"):
        learner = Learner("gcn", "replay", selector="mf", per_class=3, replay=replay, epochs=2, device=device, **budget)
        for task in cora():
            learner.observe(task)
        kept.append(learner.method.buffer.nodes.tolist())  # type: ignore[union-attr]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("method", ["replay", "derpp", "gem", "agem", "lwf", "ewc"])
def test_methods_learn_and_resume_on_a_gpu(method: str) -> None:
    tasks = cora()
    learner = Learner("gcn", method, head="growing", epochs=3, device="cuda")
    for task in tasks[:2]:
        learner.observe(task)
    other = Learner("gcn", method, head="growing", epochs=3, device="cuda")
    other.load_state_dict(learner.state_dict(), tasks[1].graph)
    for one in (learner, other):
        one.observe(tasks[2])
    for task in tasks:
        assert learner.evaluate(task) == pytest.approx(other.evaluate(task), abs=0.01)
