"""Failures do not change the learner, and errors explain what is wrong."""

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from ergnn.config.errors import CurvatureError, DivergedError
from ergnn.data import TaskStream, make_stream
from ergnn.learning.learner import Learner
from ergnn.replay.selectors import SELECTORS


@pytest.fixture(scope="module")
def stream() -> TaskStream:
    return make_stream("cora", split="seeded", edges="own").stream


class UserModel(nn.Module):
    """A user-defined network."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.first, self.last = GCNConv(1433, 8), GCNConv(8, outputs)
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor, adj: Tensor) -> Tensor:
        return self.last(self.first(x, adj).relu(), adj)


@pytest.mark.parametrize("head", ["shared", "per-task", "growing"])
def test_a_failed_task_does_not_change_the_learner(stream: TaskStream, head: str) -> None:
    def learner() -> Learner:
        return Learner("gcn", "replay", selector="mf", head=head, epochs=5)

    failing, clean = learner(), learner()
    failing.observe(stream[0])
    clean.observe(stream[0])
    good = failing.method.selector
    failing.method.selector = SELECTORS.create("im", max_iterations=1, tolerance=1e-12)
    with pytest.raises(CurvatureError):
        failing.observe(stream[1])
    failing.method.selector = good
    for task in stream[1:]:
        failing.observe(task)
        clean.observe(task)
    assert failing.heads.classes == clean.heads.classes
    assert failing.method.buffer.nodes.tolist() == clean.method.buffer.nodes.tolist()
    for p, q in zip(failing.model.parameters(), clean.model.parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_failed_first_task_does_not_change_the_learner(stream: TaskStream) -> None:
    learner = Learner("gcn", "finetune", lr=1e30, epochs=5)
    with pytest.raises(DivergedError, match=r"lr = 1e\+30; use a smaller lr"):
        learner.observe(stream[0])
    assert learner.model is None
    assert learner.num_tasks == 0
    assert learner.heads.classes == []


@pytest.mark.parametrize(("method", "options"), [("replay", {"selector": "im"}), ("ewc", {}), ("gem", {})])
def test_custom_models_support_every_method_on_sparse_features(
    stream: TaskStream, method: str, options: dict[str, str]
) -> None:
    learner = Learner(UserModel(2), method, head="shared", epochs=3, **options)
    for task in stream[:2]:
        learner.observe(task)
    assert 0.0 <= learner.evaluate(stream[0]) <= 1.0
