"""Selection: influence compared with per-node gradients and curvlinops, coverage compared with a full count."""

from __future__ import annotations

from functools import partial

import torch

from benchmarks.cases.common import cora, er_gat_im
from benchmarks.graphs import bag_of_words_graph, synthetic_stream
from benchmarks.measure import Measurement, seconds
from benchmarks.plain import PlainLearner
from ergnn.data import Task
from ergnn.engine.curvature import flatten, gauss_newton_product
from ergnn.engine.objective import make_objective
from ergnn.learning.learner import Learner
from ergnn.nn.examples import Examples
from ergnn.replay.selectors import SELECTORS, SelectionContext, Selector, best_per_class


def context_of(learner: Learner, task: Task, examples: Examples) -> SelectionContext:
    """Return the selection context after training a task on these examples."""
    return learner.selection_context(task, examples, 1, False)


def influence(threads: int, quick: bool) -> list[Measurement]:
    """Measure influence on a Cora task (also compared with training), and on 100,000 nodes."""
    tasks, repeats = cora(), 1 if quick else 3
    learner = er_gat_im(0, 20 if quick else 200)
    for task in tasks:
        learner.observe(task)
    context = context_of(learner, tasks[2], learner.method.examples(learner, tasks[2]))
    ours = seconds(lambda: SELECTORS.create("im").select(context), 5)
    plain = PlainLearner("gat", tasks.num_features, 2, epochs=2)
    plain.observe(tasks[2], select=False)
    peer = seconds(lambda: plain.influence(tasks[2]), repeats)
    training = learner.history[2]["train_seconds"]
    big = large_influence(quick, repeats)
    name = f"influence: {big['nodes']:,} nodes, {big['edges'] / 1e6:.1f} M edges"
    gradients = "peer: per-node gradients, whole graph"
    return [
        *gauss_newton_products(learner, tasks[2], plain, threads),
        Measurement("influence: Cora, 40 training nodes", ours * 1e3, peer * 1e3, "ms", threads, gradients, repeats),
        Measurement("influence: Cora, beside its task's training", ours, training, "s", threads, "peer: that training"),
        Measurement(name, big["select"], big["epochs"], "s", threads, "peer: 20 of its own epochs", repeats),
    ]


def large_influence(quick: bool, repeats: int) -> dict[str, float]:
    """Measure selection on a graph of 100,000 nodes (every fifth labeled), compared with 20 epochs of training."""
    nodes = 20_000 if quick else 100_000
    graph = bag_of_words_graph(nodes, nodes * 5, 1000, 10)
    tasks = synthetic_stream(graph, classes_per_task=10, train=nodes // 50, test=100)
    learner = er_gat_im(0, 20)
    examples = learner.observe(tasks[0]).examples(graph, tasks[0].train, 0)
    context = context_of(learner, tasks[0], examples.weighted(1 / len(examples)))
    select = seconds(lambda: SELECTORS.create("im").select(context), repeats, 0)
    shape = {"nodes": graph.num_nodes, "edges": graph.num_edges}
    return {"select": select, "epochs": learner.history[0]["train_seconds"], **shape}


def gauss_newton_products(learner: Learner, task: Task, plain: PlainLearner, threads: int) -> list[Measurement]:
    """Measure one Gauss-Newton product on a Cora task, compared with curvlinops on the plain model (if installed)."""
    try:
        from curvlinops import GGNLinearOperator
    except ModuleNotFoundError:
        return []
    assert learner.model is not None
    own = learner.examples(task.graph, task.train, task.id)
    objective = make_objective([learner.model], [own.weighted(1 / len(own))])
    params = objective.parameters()
    product, vector = gauss_newton_product(objective, params), flatten(params)

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = plain.model.eval()

        def forward(self, nodes: torch.Tensor) -> torch.Tensor:
            return self.model(x, task.graph.edge_index)[nodes]

    x = task.graph.dense_x()
    data = [(task.train, task.targets(task.train))]
    weights = list(plain.model.parameters())
    loss = torch.nn.CrossEntropyLoss()
    operator = GGNLinearOperator(Logits(), loss, weights, data, check_deterministic=False)
    theirs = torch.cat([p.detach().reshape(-1) for p in weights])
    ours, peer = seconds(lambda: product(vector), 5), seconds(lambda: operator @ theirs, 3)
    name = "influence: a Gauss-Newton product on Cora"
    return [Measurement(name, ours * 1e3, peer * 1e3, "ms", threads, "peer: curvlinops on plain PyG layers", 3)]


def coverage(threads: int, quick: bool) -> list[Measurement]:
    """Measure coverage (CM*) with early stopping per candidate, compared with counting all pairs in chunks."""
    large = 8_000 if quick else 20_000
    graph = bag_of_words_graph(large, large * 3, 200, 10)
    wide = synthetic_stream(graph, classes_per_task=10, train=large // 10 - 100, test=50)[0]
    out = []
    for name, task in (("Cora, 40 training nodes", cora()[0]), (f"{large - 1000:,} training nodes", wide)):
        learner = Learner("gcn", "finetune", epochs=5).observe(task)
        context = context_of(learner, task, learner.examples(task.graph, task.train, 0))
        found = SELECTORS.create("cm*").select(context)
        selector = SELECTORS.create("cm*", d=found.info["d"])  # the quantile costs both the same
        repeats = 3 if task is wide else 20
        ours = seconds(partial(selector.select, context), repeats)
        peer = seconds(partial(count_all, selector, context), repeats)
        note = "peer: all pairs, in chunks"
        out.append(Measurement(f"coverage: {name}", ours * 1e3, peer * 1e3, "ms", threads, note, repeats))
    return out


def count_all(selector: Selector, context: SelectionContext) -> None:
    best_per_class(selector.score(context), context)
