"""A graph and a module of the user's own, on a graph of 280 nodes without masks."""

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCN

import ergnn
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
