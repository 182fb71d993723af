"""What is measured. Each case returns measurements; ``ergnn bench`` runs them all or some."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from ergnn.bench.graphs import bag_of_words_graph, corafull_like, synthetic_stream
from ergnn.bench.measure import Measurement, in_fresh_process, seconds
from ergnn.bench.plain import PlainLearner, plain_model, plain_stream
from ergnn.curvature import flatten, gauss_newton_product
from ergnn.data import Task, TaskStream, make_stream
from ergnn.experiments.run import learn_streams, peak_memory_mb
from ergnn.learner import Learner
from ergnn.nn.backbones import BACKBONES
from ergnn.nn.dropout import dropout_keys
from ergnn.nn.objective import make_objective
from ergnn.observing import begin, observe_together

Case = Callable[[int, bool], list[Measurement]]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def _cora() -> TaskStream:
    return make_stream("cora", split="seeded").stream


def _er_gat_im(seed: int, epochs: int = 200, **options: Any) -> Learner:
    return Learner(
        "gat", "replay", selector="im", head="shared", weight_decay=5e-4, seed=seed, epochs=epochs, **options
    )


@case
def step(threads: int, quick: bool) -> list[Measurement]:
    """One training step of each backbone on Cora, 40 labelled nodes, dropout on."""
    task = _cora()[0]
    x, edges, target = task.graph.dense_x(), task.graph.edge_index, task.targets(task.train)
    out = []
    for name in ("gat", "gcn", "sage", "gin", "sgc"):
        learner = Learner(name, "finetune", head="shared", weight_decay=5e-4)
        _, examples = begin(learner, task)
        assert learner.model is not None
        objective = make_objective([learner.model], [examples])
        params = {key: value.requires_grad_() for key, value in objective.parameters().items()}
        optimizer = torch.optim.Adam(list(params.values()), lr=0.005, weight_decay=5e-4, fused=True)
        keys = dropout_keys([0], 0, 1, objective.dropout_sites)[0]

        def ours(objective=objective, params=params, optimizer=optimizer, keys=keys) -> None:  # type: ignore[no-untyped-def]
            optimizer.zero_grad()
            (objective.weights * objective.losses(params, keys)).sum().backward()
            optimizer.step()

        model = plain_model(name, x.size(1), 2)
        plain_optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)

        def plain(model=model, optimizer=plain_optimizer) -> None:  # type: ignore[no-untyped-def]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x, edges)[task.train], target).backward()
            optimizer.step()

        repeats = 5 if quick else 20
        a, b = seconds(ours, repeats * 3, 5), seconds(plain, repeats, 2)
        out.append(Measurement(f"step: {name} on Cora", a * 1e3, b * 1e3, "ms", threads, "peer: PyG, whole graph"))
    return out


@case
def stream(threads: int, quick: bool) -> list[Measurement]:
    """One ER-GAT-IM stream on Cora (3 tasks × 200 epochs), alone and as ten seeds together."""
    tasks, epochs = _cora(), 20 if quick else 200
    note = f"3 tasks × {epochs} epochs, 20 labelled nodes a class, selection and evaluation included"
    learn_streams([_er_gat_im(0, 2)], [tasks])  # the first call pays for torch's own set-up
    one = seconds(lambda: learn_streams([_er_gat_im(0, epochs)], [tasks]), 1 if quick else 3, 0)
    ten = seconds(lambda: learn_streams([_er_gat_im(s, epochs) for s in range(10)], [tasks] * 10), 1, 0)
    plain = seconds(lambda: plain_stream(tasks, "gat", epochs), 1, 0)
    return [
        Measurement("stream: ER-GAT-IM on Cora, one seed", one, plain, "s", threads, note),
        Measurement(
            "stream: ER-GAT-IM on Cora, ten seeds", ten, 10 * plain, "s", threads, note + "; peer: 10 × its run"
        ),
    ]


@case
def corafull(threads: int, quick: bool) -> list[Measurement]:
    """A task of a CoraFull-shaped graph, and the peak of its whole stream."""
    tasks = 3 if quick else 35
    ours = in_fresh_process("ergnn.bench.cases:corafull_stream", threads, tasks)
    plain = in_fresh_process("ergnn.bench.cases:corafull_plain_epochs", threads, 2 if quick else 5)
    note = f"{tasks} tasks × 200 epochs; peer: its epochs, timed over a few, × 200"
    return [
        Measurement("CoraFull-shaped: a task", ours["seconds"] / tasks, plain["seconds"] * 200, "s", threads, note),
        Measurement(
            "CoraFull-shaped: peak memory", ours["peak"], plain["peak"], "MB", threads, f"{tasks} tasks, whole process"
        ),
    ]


def corafull_stream(threads: int, tasks: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    tasks_of = synthetic_stream(corafull_like())
    learner = Learner("gat", "replay", selector="mf*", head="per-task", epochs=200)
    start = time.perf_counter()
    for task in tasks_of[:tasks]:
        learner.observe(task)
        for earlier in tasks_of[: task.id + 1]:
            learner.evaluate(earlier)
    return {"seconds": time.perf_counter() - start, "peak": peak_memory_mb()}


def corafull_plain_epochs(threads: int, epochs: int) -> dict[str, float]:
    """Seconds an epoch of the peer, and its peak."""
    torch.set_num_threads(threads)
    task = synthetic_stream(corafull_like())[0]
    learner = PlainLearner("gat", task.graph.num_features, 2, epochs=1)
    learner.observe(task, select=False)
    learner.epochs = epochs
    start = time.perf_counter()
    learner.observe(task, select=False)
    return {"seconds": (time.perf_counter() - start) / epochs, "peak": peak_memory_mb()}


@case
def influence(threads: int, quick: bool) -> list[Measurement]:
    """Influence of all training nodes of a Cora task; its share of training; and on 100,000 nodes."""
    tasks = _cora()
    learner = _er_gat_im(0, 20 if quick else 200)
    for task in tasks:
        learner.observe(task)
    context = learner.selection_context(tasks[2], 2, learner.method.examples(learner, tasks[2], 2), 1, False)
    selector = learner.method.selector  # type: ignore[attr-defined]
    ours = seconds(lambda: selector.select(context), 5)
    plain = PlainLearner("gat", tasks.num_features, 2, epochs=2)
    plain.observe(tasks[2], select=False)
    products = gauss_newton_products(learner, tasks[2], plain, threads)
    peer = seconds(lambda: plain.influence(tasks[2]), 1, 0)
    training = learner.history[2]["train_seconds"]
    big = large_influence(quick)
    nodes = f"{big['nodes']:,} nodes, {big['edges'] / 1e6:.1f} M edges"
    return [
        *products,
        Measurement(
            "influence: Cora, 40 training nodes",
            ours * 1e3,
            peer * 1e3,
            "ms",
            threads,
            "peer: per-node gradients, whole graph",
        ),
        Measurement(
            "influence: Cora, beside its task's training", ours, training, "s", threads, "peer: the training itself"
        ),
        Measurement(
            f"influence: {nodes}",
            big["select"],
            big["epochs"],
            "s",
            threads,
            "peer: 20 of its own epochs",
        ),
    ]


def large_influence(quick: bool) -> dict[str, float]:
    """Selection on a graph of 100,000 nodes, beside 20 epochs of training there (every fifth node labelled)."""
    nodes = 20_000 if quick else 100_000
    graph = bag_of_words_graph(nodes, nodes * 5, 1000, 10)
    tasks = synthetic_stream(graph, classes_per_task=10, train=nodes // 50, test=100)
    learner = _er_gat_im(0, 20)
    learner.observe(tasks[0])
    spent = learner.history[0]
    shape = {"nodes": graph.num_nodes, "edges": graph.num_edges}
    return {"select": spent["select_seconds"], "epochs": spent["train_seconds"], **shape}


def gauss_newton_products(learner: Learner, task: Task, plain: PlainLearner, threads: int) -> list[Measurement]:
    """One Gauss-Newton product on a Cora task, beside curvlinops on the plain model (where it is installed)."""
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
    return [Measurement(name, ours * 1e3, peer * 1e3, "ms", threads, "peer: curvlinops on plain PyG layers")]


@case
def size(threads: int, quick: bool) -> list[Measurement]:
    """One GAT step over the size of the graph, 40 labelled nodes."""
    out = []
    for nodes in (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        graph = bag_of_words_graph(nodes, nodes * 5, 500, 2)
        task = synthetic_stream(graph, train=20, test=50)[0]
        learner = Learner("gat", "finetune", epochs=20)
        start = time.perf_counter()
        learner.observe(task)
        ours = (time.perf_counter() - start) / 20
        peer = None
        if nodes <= 100_000:
            plain = PlainLearner("gat", 500, 2, epochs=2)
            plain.observe(task, select=False)
            start = time.perf_counter()
            plain.observe(task, select=False)
            peer = (time.perf_counter() - start) / 2 * 1e3
        note = "10 directed edges a node; field set-up included" + (
            "" if peer else "; the peer was not run at this size"
        )
        out.append(Measurement(f"size: {nodes:,} nodes, a step", ours * 1e3, peer, "ms", threads, note))
    return out


@case
def tasks(threads: int, quick: bool) -> list[Measurement]:
    """Time a task in a long stream: the last five beside the first five (which are the peer)."""
    Learner("gat", "replay", epochs=2).observe(_cora()[0])  # the first call pays for torch's own set-up
    count = 12 if quick else 50
    graph = bag_of_words_graph(20_000, 60_000, 2000, 2 * count)
    long = synthetic_stream(graph)
    out = []
    variants: list[tuple[str, dict[str, Any]]] = [("whole buffer", {}), ("replay_batch=4", {"replay_batch": 4})]
    for label, options in variants:
        learner = Learner("gat", "replay", selector="mf*", head="per-task", epochs=50 if quick else 200, **options)
        times = []
        for task in long:
            start = time.perf_counter()
            learner.observe(task)
            times.append(time.perf_counter() - start)
        first = statistics.median(times[:5])
        note = f"{count} tasks × {learner.training.epochs} epochs, e = 1, {label}; peer: the first five (medians)"
        for start_at in range(0, count, 10):
            part = statistics.median(times[start_at : start_at + 10])
            name = f"tasks: from {start_at + 1} of {count}, {label}"
            out.append(Measurement(name, part, first, "s", threads, note))
        last = statistics.median(times[-5:])
        out.append(Measurement(f"tasks: the last five of {count}, {label}", last, first, "s", threads, note))
    return out


@case
def seeds(threads: int, quick: bool) -> list[Measurement]:
    """A GAT task on Cora for S seeds side by side, beside S times one."""
    task, epochs = _cora()[0], 20 if quick else 100
    out = []
    for backbone in ("gat", "gcn"):

        def learn(count: int, backbone: str = backbone) -> None:
            learners = [Learner(backbone, "finetune", seed=s, epochs=epochs) for s in range(count)]
            observe_together(learners, [task] * count)

        one = seconds(lambda: learn(1), 3)
        for count in (2, 5, 10, 20):
            many = seconds(lambda count=count: learn(count), 1)  # type: ignore[misc]
            out.append(
                Measurement(
                    f"seeds: {count} of {backbone} together", many, one * count, "s", threads, "peer: one after another"
                )
            )
    return out


def table2_block(dataset: str, device: str, seeds: int = 10, epochs: int = 200) -> dict[str, float]:
    """Seconds of each backbone's part of the paper's table 2, all rows and seeds of it side by side."""
    preset = make_stream(dataset, split="auto", inter_task_edges="own")
    on_device = preset.stream.to(device)
    spent = {}
    for backbone in ("gat", "gcn", "sage", "gin", "sgc"):
        shared: dict[str, Any] = {"head": "shared", "epochs": epochs, "device": device}
        shared["weight_decay"] = BACKBONES.get(backbone).weight_decay
        rows: list[tuple[str, dict[str, Any]]] = [("finetune", {})]
        if backbone == "gat":
            rows += [("replay", {"selector": name}) for name in ("random", "mf", "mf*", "cm", "cm*", "im")]
        learners = [Learner(backbone, method, seed=s, **shared, **own) for method, own in rows for s in range(seeds)]
        start = time.perf_counter()
        learn_streams(learners, [on_device] * len(learners))
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize()
        spent[backbone] = time.perf_counter() - start
        for phase in ("train_seconds", "select_seconds"):
            spent[f"{backbone} {phase}"] = sum(entry[phase] for learner in learners for entry in learner.history)
    return spent
