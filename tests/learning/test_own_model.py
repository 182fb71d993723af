"""A graph and a module of the user's own: what the README shows, on a graph of 280 nodes without masks."""

import re

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GCNConv

import ergnn
from doc_blocks import ROOT
from ergnn.config.errors import InputError
from ergnn.data import Task

NODES, FEATURES = 280, 12


def own_data(classes: int = 6) -> Data:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(NODES) % classes
    x = torch.eye(FEATURES)[y] + 0.3 * torch.randn(NODES, FEATURES, generator=generator)
    source = torch.randint(NODES, (4 * NODES,), generator=generator)
    target = (source + classes * torch.randint(1, 10, source.shape, generator=generator)) % NODES
    return Data(x=x, edge_index=torch.stack([torch.cat([source, target]), torch.cat([target, source])]), y=y)


class MyGNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = GCNConv(FEATURES, 16), GCNConv(16, 6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(self.first(x, edge_index).relu(), edge_index)


def test_the_lines_of_the_readme_run_on_a_small_graph_without_masks() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    diff = next(block for block in re.findall(r"```diff\n(.*?)```", text, re.DOTALL) if "from_pyg" in block)
    lines = "\n".join(line[2:] for line in diff.splitlines() if line.startswith("+ "))
    names = {"ergnn": ergnn, "data": own_data(), "MyGNN": MyGNN}
    exec(lines.replace("per_class=1)", "per_class=1, epochs=30, lr=0.05)"), names)
    matrix = ergnn.evaluate_stream(names["learner"], names["stream"])
    assert len(matrix.values) == 3
    assert ergnn.performance_mean(matrix) > 0.8


def stream_of(*sizes: int) -> ergnn.TaskStream:
    """Tasks of so many classes each, in one graph."""
    graph = ergnn.Graph.from_pyg(own_data(sum(sizes)))
    parts = ergnn.TaskStream.from_classes(graph, classes_per_task=1)
    tasks, start = [], 0
    for number, size in enumerate(sizes):
        some = parts[start : start + size]
        nodes = (torch.cat([getattr(task, split) for task in some]) for split in ("train", "val", "test"))
        tasks.append(Task(number, graph, *nodes, tuple(range(start, start + size))))
        start += size
    return ergnn.TaskStream(tasks)


@pytest.mark.parametrize("head", ["per-task", "growing"])
@pytest.mark.parametrize("sizes", [(4, 4, 3), (2, 2, 3)])
def test_tasks_may_differ_in_their_number_of_classes(sizes: tuple[int, ...], head: str) -> None:
    stream = stream_of(*sizes)
    module = GCN(FEATURES, 16, num_layers=2, out_channels=sum(sizes))
    learner = ergnn.Learner(module, selector="mf", per_class=3, head=head, epochs=40, lr=0.05)
    matrix = ergnn.evaluate_stream(learner, stream)
    assert ergnn.performance_mean(matrix) > 0.8
    assert learner.classes(2).tolist() == list(stream[2].classes)


@pytest.mark.parametrize(
    ("head", "outputs", "message"),
    [
        ("per-task", 6, r"GCN has 6 outputs, but 7 are needed.*\(2 \+ 2 \+ 3\); build it with 7 outputs"),
        ("growing", 6, r"GCN has 6 outputs, but 7 are needed"),
        ("shared", 3, r"task 3 .*a task with 3 classes does not fit the shared head of 2 outputs.*head='per-task'"),
    ],
)
def test_a_module_with_too_few_outputs_is_refused_before_the_first_task(
    head: str, outputs: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "ergnn.learning.observing.train_in_phases", lambda *args, **kwargs: pytest.fail("it trained first")
    )
    module, stream = GCN(FEATURES, 16, num_layers=2, out_channels=outputs), stream_of(2, 2, 3)
    with pytest.raises(InputError, match=message):
        ergnn.evaluate_stream(ergnn.Learner(module, selector="mf", head=head, epochs=2), stream)
    with pytest.raises(InputError, match=message):
        ergnn.run(stream, ergnn.LearnerConfig(module, head=head, epochs=2, method_options={"selector": "mf"}), seeds=1)
