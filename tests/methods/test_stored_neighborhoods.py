"""SSM and PDGNN-TEM: what they store, how it is sampled, and training on it against a plain loop."""

from collections import Counter
from dataclasses import replace

import networkx as nx
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.data import Graph, Task, TaskStream
from ergnn.learning.learner import Learner
from ergnn.methods.graph_memory import PDGNN, SSM, coverage, embedded, sparsify
from ergnn.nn.heads import HEADS
from graphs import dense_powers, random_graph
from methods.plain_loop import PlainGCN, assert_same_parameters, learn_plainly, learned, make_tasks


def undirected(pairs: list[tuple[int, int]], n: int) -> Graph:
    edges = torch.tensor([*pairs, *((b, a) for a, b in pairs)]).T
    return Graph(torch.eye(n), edges, torch.zeros(n, dtype=torch.long))


def balanced(losses: list[Tensor], labels: list[Tensor]) -> Tensor:
    every, label = torch.cat(losses), torch.cat(labels)
    return torch.stack([every[label == c].mean() for c in label.unique()]).mean()


@pytest.mark.parametrize("head", HEADS)
def test_ssm_trains_on_stored_subgraphs_with_balanced_classes(head: str) -> None:
    tasks = make_tasks()
    learner = learned("ssm", head, tasks, per_class=2, neighbors=2)
    parts = learner.method.buffer.experiences  # type: ignore[union-attr]

    def loss(model: PlainGCN, before: PlainGCN, task: Task) -> Tensor:
        losses = [
            F.cross_entropy(model.scores(task, task.id)[task.train], model.targets(task, task.train), reduction="none")
        ]
        labels = [task.graph.y[task.train]]
        for part in parts[: task.id]:
            assert part.copy is not None
            scores = model.scores(replace(task, graph=part.copy), part.task)[: len(part)]
            targets = model.targets(tasks[part.task], part.nodes)
            losses.append(F.cross_entropy(scores, targets, reduction="none"))
            labels.append(part.labels)
        return balanced(losses, labels)

    assert_same_parameters(learner, learn_plainly(tasks, head, loss))


def test_a_sparsified_subgraph_has_real_edges_and_few_nodes() -> None:
    graph = random_graph(n=60, p_edge=0.3)
    real = set(map(tuple, graph.edge_index.T.tolist()))
    small = sparsify(graph, torch.tensor([5]), 2, 3, torch.Generator().manual_seed(0))
    kept = set(map(tuple, small.edge_index.T.tolist()))
    inside = {v for edge in kept for v in edge}
    assert 5 in inside
    assert 4 < len(inside) <= 1 + 3 + 9
    assert kept == {edge for edge in real if set(edge) <= inside}
    whole = sparsify(graph, torch.tensor([5]), 1, 60, torch.Generator().manual_seed(0))
    assert set(whole.edge_index.flatten().tolist()) == {5, *(a for a, b in real if b == 5)}


def test_neighbors_are_sampled_in_proportion_to_their_degrees() -> None:
    graph = undirected([(0, 1), (0, 2), (2, 3), (2, 4)], 5)  # node 0 has neighbors of degree 1 and 3
    generator, drawn = torch.Generator().manual_seed(0), Counter[int]()
    for _ in range(1000):
        drawn.update(set(sparsify(graph, torch.tensor([0]), 1, 1, generator).edge_index.flatten().tolist()) - {0})
    assert drawn.total() == 1000
    assert abs(drawn[2] - 750) < 60  # 4 standard deviations


def test_ssm_stores_less_than_whole_neighborhoods_and_respects_a_budget() -> None:
    stream = TaskStream.from_classes(random_graph(n=120, p_edge=0.1))
    sizes = [learned(SSM(per_class=2, neighbors=n), "growing", stream).method.nbytes for n in (0, 2, 120)]
    assert sizes[0] < sizes[1] < sizes[2]
    assert sizes[2] == learned("replay", "growing", stream, selector="random", per_class=2, replay="ego").method.nbytes
    assert learned(SSM(per_class=2, budget_bytes=1000), "growing", stream).method.nbytes <= 1000


@pytest.mark.parametrize("head", HEADS)
def test_pdgnn_trains_on_propagated_features_and_stores_them(head: str) -> None:
    tasks = make_tasks()
    learner = learned("pdgnn-tem", head, tasks, per_class=2)
    parts = learner.method.buffer.experiences  # type: ignore[union-attr]
    for task, part in zip(tasks, parts, strict=True):
        torch.testing.assert_close(part.copy.x, dense_powers(task.graph, 2)[part.nodes].float())
        assert part.nbytes == 4 * (8 * 4 + 16)  # no neighbors: features, id and label of four nodes

    def view(task: Task) -> Task:
        return replace(task, graph=replace(task.graph, x=dense_powers(task.graph, 2).float(), edge_index=NO_EDGES))

    def loss(model: PlainGCN, before: PlainGCN, task: Task) -> Tensor:
        losses, labels = [], []
        for number in range(task.id + 1):
            nodes = task.train if number == task.id else parts[number].nodes
            scores = model.scores(view(task), number)[nodes]
            losses.append(F.cross_entropy(scores, model.targets(tasks[number], nodes), reduction="none"))
            labels.append(task.graph.y[nodes])
        return balanced(losses, labels)

    model = learn_plainly(tasks, head, loss)
    assert_same_parameters(learner, model)
    for task in tasks:
        scores = model.scores(view(tasks[-1]), task.id)[task.test]
        classes = range(6) if head == "growing" else task.classes
        assert learner.predict(task.test, None if head == "growing" else task.id).tolist() == [
            classes[i] for i in scores.argmax(1).tolist()
        ]


NO_EDGES = torch.empty(2, 0, dtype=torch.long)


def test_coverage_is_the_size_of_the_neighborhood() -> None:
    graph = random_graph(n=50, p_edge=0.05, isolated=3)
    links = nx.Graph(graph.edge_index.T.tolist())
    links.add_nodes_from(range(50))
    for hops in (0, 1, 2, 3):
        expected = [len(nx.single_source_shortest_path_length(links, v, hops)) for v in range(50)]
        assert coverage(graph, torch.arange(50), hops).tolist() == expected
    assert embedded(graph, 2) is embedded(graph, 2)


def test_pdgnn_samples_in_proportion_to_coverage() -> None:
    pairs = [(0, 2), (0, 3), (4, 5)]  # classes {0, 1} and {4, 5}; nodes 0 and 1 cover 3 and 1 nodes
    graph = replace(undirected(pairs, 6), y=torch.tensor([0, 0, -1, -1, 1, 1]))
    task = Task(0, graph, torch.tensor([0, 1, 4, 5]), NO_EDGES[0], torch.tensor([2]), (0, 1))
    learner, method = Learner("mlp", "finetune"), PDGNN(hops=1)
    learner.model = learner.new_model(6)
    learner.add_head(task.classes)
    examples, drawn = learner.examples(graph, task.train, 0), Counter[int]()
    for learner.seed in range(1000):
        drawn.update(method.select(learner, task, examples).nodes.tolist())
    assert drawn.total() == 2000
    assert abs(drawn[0] - 750) < 60
    assert abs(drawn[4] - 500) < 70
