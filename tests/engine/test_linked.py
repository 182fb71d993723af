"""Models on the neighbor lists of a large graph equal PyG in scores and gradients, single and stacked."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ergnn.engine.adjacency
from ergnn.data import Graph
from ergnn.data.stream import TaskStream
from ergnn.engine import blocks
from ergnn.engine.adjacency import adjacency_of
from ergnn.engine.blocks import LinkedBlock
from ergnn.engine.field import make_field
from ergnn.engine.objective import FieldObjective
from ergnn.engine.outputs import embed
from ergnn.learning.learner import Learner
from ergnn.learning.observing import observe_together
from graphs import random_graph
from nn.cases import assert_near, examples_of, messy_graphs, model_of, reference_logits

NAMES = ("gat", "gcn", "sage", "gin", "sgc", "mlp")
WIDTHS = [2, 3, 2]


@pytest.fixture(autouse=True)
def every_graph_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ergnn.engine.adjacency, "LINKED_FROM", 0)
    monkeypatch.setattr(ergnn.engine.adjacency, "CHUNK_EDGES", 13)


@pytest.mark.parametrize(  # whole graphs, as by size, or used rows only
    ("name", "whole"),
    [("gat", -1.0), ("gat", 0.4), ("gat", 2.0), ("gcn", -1.0), ("sage", 2.0), ("gin", 2.0), ("sgc", 0.4), ("mlp", 0.4)],
)
@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_scores_and_gradients_equal_pyg(
    name: str, whole: float, data: st.DataObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "WHOLE_FROM", whole)
    graph = data.draw(messy_graphs())
    model = model_of(name, graph.num_features, WIDTHS)
    for heads_each in (1, 2):
        examples = data.draw(examples_of(graph, WIDTHS, heads_each))
        objective = FieldObjective([model], [examples])
        assert objective.field.linked
        params = {key: value.requires_grad_() for key, value in objective.parameters().items()}
        scores, expected = objective.logits(params), reference_logits(model, examples)
        assert_near(scores, expected)
        weight = torch.randn(scores.shape, generator=torch.Generator().manual_seed(0), dtype=scores.dtype)
        own = dict(zip(params, torch.autograd.grad((weight * scores).sum(), params.values()), strict=True))
        names = dict(model.named_parameters())
        theirs = torch.autograd.grad((weight * expected).sum(), names.values(), allow_unused=True)
        for key, value in objective.by_name(own).items():
            found = dict(zip(names, theirs, strict=True))[key]
            assert_near(value, torch.zeros_like(value) if found is None else found)


@pytest.mark.parametrize("name", NAMES)
def test_embeddings_equal_those_on_the_whole_graph(name: str) -> None:
    graph = random_graph(n=50, self_loops=True, dtype=torch.float64)
    model = model_of(name, graph.num_features, [2])
    nodes = torch.tensor([7, 3, 3, 49])
    assert_near(embed(model, graph, nodes), model.eval().embed(graph.x, graph.edge_index)[nodes])


def test_features_and_lists_of_a_whole_graph_are_not_copied() -> None:
    plain = random_graph(n=50, p_edge=0.4)
    adj = adjacency_of(plain)
    graph = Graph.from_csr(plain.x, adj.rowptr, adj.col, plain.y, undirected=True)
    nodes = torch.arange(50)
    field = make_field(model_of("gat", 8, [3], dtype=torch.float32), graph, nodes, torch.zeros(50, 1).long())
    assert field.features is graph.x
    assert field.take is None
    for block in (*field.layers, field.head):
        assert isinstance(block, LinkedBlock)
        assert block.links.col is graph.csr.col
        assert block.links.transposed() is block.links
        assert block.root is None


def task_of(graph: Graph) -> TaskStream:
    return TaskStream.from_classes(graph, classes_per_task=2)


@pytest.mark.parametrize("name", ["gat", "gcn"])
def test_stacked_models_equal_single_models(name: str) -> None:
    tasks = task_of(random_graph(n=80, p_edge=0.2))
    together = [Learner(name, "replay", selector="im", seed=seed, epochs=5) for seed in range(2)]
    for task in tasks:
        observe_together(together, [task] * 2)
    for seed, learner in enumerate(together):
        alone = Learner(name, "replay", selector="im", seed=seed, epochs=5)
        for task in tasks:
            alone.observe(task)
        assert alone.method.buffer.nodes.tolist() == learner.method.buffer.nodes.tolist()
        for p, q in zip(alone.model.parameters(), learner.model.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
        assert [alone.evaluate(task) for task in tasks] == [learner.evaluate(task) for task in tasks]
