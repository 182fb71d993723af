"""The Triton kernels on a GPU equal plain PyTorch in double precision, on graphs of many shapes."""

from dataclasses import replace

import pytest
import torch

import ergnn.engine.adjacency
import ergnn.engine.training
from engine.kernels.cases import SHAPES
from engine.kernels.checks import PROJECTIONS, check_attention, check_dropped, check_projection, check_sums
from ergnn.data import Graph, TaskStream
from ergnn.data.splits import per_class
from ergnn.engine import kernels
from ergnn.engine.adjacency import Adjacency
from ergnn.engine.curvature import gauss_newton_product, gradient
from ergnn.engine.kernels.attention import attention
from ergnn.engine.objective import make_objective
from ergnn.learning.evaluation import scores_together
from ergnn.learning.learner import Learner
from ergnn.nn.backbones import BACKBONES
from ergnn.nn.examples import Examples

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


@pytest.mark.parametrize(
    ("segment", "narrow"),
    [(2048, 64.0), (5, 64.0), (5, -1.0)],
    ids=["whole rows", "rows in pieces", "largest score per piece"],
)
@pytest.mark.parametrize("name", SHAPES)
def test_kernels_equal_autograd_in_double_precision(
    name: str, segment: int, narrow: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ergnn.engine.kernels import triton_attention

    monkeypatch.setattr(kernels, "SEGMENT", segment)
    monkeypatch.setattr(triton_attention, "NARROW", narrow)
    for width in (5, 16, 70):
        check_sums(name, width, torch.float32, "cuda", 1e-5)
    for p in (0.0, 0.6):
        for seed in range(3):
            check_attention(name, p, torch.float32, "cuda", 1e-4, seed)


def test_dropout_equals_the_cpu() -> None:
    check_dropped("cuda")


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize(("sizes", "features", "width", "p"), [*PROJECTIONS, ([700] * 50, 767, 16, 0.5)])
def test_products_with_dropout_equal_double_precision(
    sizes: list[int], features: int, width: int, p: float, sparse: bool
) -> None:
    check_projection("cuda", sizes, features, width, p, sparse)


def large(n: int = 20_000, hub: int = 15_000, directed: bool = False) -> Graph:
    """Return a graph with a hub of more edges than one program processes; empty rows if directed."""
    generator = torch.Generator().manual_seed(0)
    pair = torch.randint(n, (2, 600_000), generator=generator)
    pair[0, :hub] = 3
    edges = torch.unique(pair if directed else torch.cat([pair, pair.flip(0)], 1), dim=1)
    x = torch.randn(n, 50, generator=generator)
    return Graph(x, edges, torch.randint(5, (n,), generator=generator), name="large").to("cuda")


@pytest.mark.parametrize("directed", [False, True])
def test_split_hubs_are_deterministic(directed: bool) -> None:
    graph = large(directed=directed)
    links = Adjacency(graph.edge_index, graph.num_nodes).looped
    generator = torch.Generator().manual_seed(1)
    shapes = [(links.sources, 8, 8), (links.sources, 8), (links.targets, 8)]
    values = [torch.randn(*shape, generator=generator).cuda().requires_grad_() for shape in shapes]
    weight = torch.randn(links.targets, 8, 8, generator=generator).cuda()
    key = torch.tensor([5], dtype=torch.int32, device="cuda")

    def both(points: list[torch.Tensor]) -> list[torch.Tensor]:
        out = attention(*points, links, 0.2, key, 0.6)
        return [out, *torch.autograd.grad(out, points, weight.to(out.dtype))]

    first, again = both(values), both(values)
    exact = both([value.detach().double().requires_grad_() for value in values])
    for a, b, c in zip(first, again, exact, strict=True):
        assert torch.equal(a, b)
        assert float((a - c).norm() / c.norm()) < 1e-4


@pytest.mark.parametrize("name", ["gat", "gcn", "sage", "gin", "sgc"])
def test_a_model_on_neighbor_lists_equals_the_model_on_edges(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare scores, gradients and Gauss-Newton products of examples that two heads score."""
    graph = large()
    torch.manual_seed(0)
    model = BACKBONES.create(name, in_channels=50)
    model.add_head(5), model.add_head(5)
    model.cuda()
    nodes = torch.arange(0, graph.num_nodes, 7, device="cuda")
    heads = (nodes % 2).unsqueeze(1)
    examples = Examples(graph, nodes, heads, graph.y[nodes], torch.rand(nodes.numel(), device="cuda"))
    found = []
    for limit in (10**9, 0):
        monkeypatch.setattr(ergnn.engine.adjacency, "LINKED_FROM", limit)
        objective = make_objective([model], [examples])
        params = objective.parameters()
        vector = torch.randn(sum(v.numel() for v in params.values()), generator=torch.Generator().manual_seed(2)).cuda()
        with torch.no_grad():
            scores = objective.logits(params)
        product = gauss_newton_product(objective, params)(vector)
        found.append([scores, gradient(objective, params, objective.weights), product])
    for a, b in zip(*found, strict=True):
        assert float((a - b).norm() / b.norm()) < 1e-4


def tasks_of(graph: Graph, classes: int) -> TaskStream:
    split = per_class(graph.y.cpu(), train=50, val=20, seed=0).to("cuda")
    return TaskStream.from_classes(replace(graph, public_split=split), classes_per_task=classes)


def test_a_recorded_step_on_neighbor_lists_equals_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ergnn.engine.adjacency, "LINKED_FROM", 0)
    task = tasks_of(large(4000, 3000), 5)[0]
    made = []
    for limit in (20, 10**9):
        monkeypatch.setattr(ergnn.engine.training, "GRAPH_FROM", limit)
        made.append(Learner("gat", "replay", selector="im", device="cuda", epochs=40).observe(task))
    for p, q in zip(made[0].model.parameters(), made[1].model.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
    assert made[0].method.buffer.nodes.tolist() == made[1].method.buffer.nodes.tolist()


def test_a_stream_on_neighbor_lists_is_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train on examples of several tasks with one head per task."""
    monkeypatch.setattr(ergnn.engine.adjacency, "LINKED_FROM", 0)
    made = []
    for _ in range(2):
        learner = Learner("gat", "replay", selector="im", device="cuda", epochs=40)
        stream = tasks_of(large(6000, 5000), 2)
        for task in stream:
            learner.observe(task)
        assert scores_together([learner], [stream])[0] == pytest.approx(
            [learner.evaluate(task) for task in stream], abs=1e-3
        )
        made.append(learner)
    for p, q in zip(made[0].model.parameters(), made[1].model.parameters(), strict=True):
        assert torch.equal(p, q)
    assert made[0].method.buffer.nodes.tolist() == made[1].method.buffer.nodes.tolist()


def test_softmax_is_exact_if_row_maxima_are_far_below_the_global_maximum() -> None:
    """Node 0 has a score of 500 and no out-edges; relative to it, all weights would underflow to zero."""
    n, d = 300, 7
    col = (1 + (torch.arange(n * d) * 7919) % (n - 1)).int().cuda()
    links = kernels.Links(torch.arange(n + 1).cuda() * d, col, n)
    generator = torch.Generator().manual_seed(0)
    z, a_src, a_dst = (torch.randn(*shape, generator=generator) for shape in ((n, 8, 8), (n, 8), (n, 8)))
    a_src[0] = 500.0
    values = [value.cuda() for value in (z, a_src, a_dst)]
    out, exact = attention(*values, links), attention(*(value.double() for value in values), links)
    assert float((out - exact).norm() / exact.norm()) < 1e-5
