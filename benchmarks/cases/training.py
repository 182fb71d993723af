"""Training: a step, a stream, and several seeds at once."""

from __future__ import annotations

from functools import partial

import torch

from benchmarks.cases.common import cora, er_gat_im
from benchmarks.measure import Measurement, seconds
from benchmarks.plain import plain_model, plain_stream
from ergnn.engine.dropout import dropout_keys
from ergnn.engine.objective import make_objective
from ergnn.learning.evaluation import evaluate_streams
from ergnn.learning.learner import Learner
from ergnn.learning.observing import begin, observe_together


def step(threads: int, quick: bool) -> list[Measurement]:
    """One training step of each backbone on Cora, 40 labeled nodes, dropout on."""
    task, repeats = cora()[0], 5 if quick else 20
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

        a, b = seconds(ours, repeats * 3, 5), seconds(plain, repeats, 2)
        note = "peer: PyG, whole graph"
        out.append(Measurement(f"step: {name} on Cora", a * 1e3, b * 1e3, "ms", threads, note, repeats))
    return out


def stream(threads: int, quick: bool) -> list[Measurement]:
    """One ER-GAT-IM stream on Cora (3 tasks × 200 epochs), alone and as ten seeds together."""
    tasks, epochs, repeats = cora(), 20 if quick else 200, 1 if quick else 3
    note = f"3 tasks × {epochs} epochs, 20 labeled nodes per class, including selection and evaluation"
    evaluate_streams([er_gat_im(0, 2)], [tasks])  # warm-up: the first call initializes torch
    one = seconds(lambda: evaluate_streams([er_gat_im(0, epochs)], [tasks]), repeats, 0)
    ten = seconds(lambda: evaluate_streams([er_gat_im(s, epochs) for s in range(10)], [tasks] * 10), repeats, 0)
    plain = seconds(lambda: plain_stream(tasks, "gat", epochs), repeats, 0)
    many = note + "; peer: 10 × its run"
    return [
        Measurement("stream: ER-GAT-IM on Cora, one seed", one, plain, "s", threads, note, repeats),
        Measurement("stream: ER-GAT-IM on Cora, ten seeds", ten, 10 * plain, "s", threads, many, repeats),
    ]


def seeds(threads: int, quick: bool) -> list[Measurement]:
    """A task on Cora for S seeds of GAT and GCN trained together, compared with S single runs."""
    task, epochs, repeats = cora()[0], 20 if quick else 100, 1 if quick else 3
    out = []
    for backbone in ("gat", "gcn"):

        def learn(count: int, backbone: str = backbone) -> None:
            learners = [Learner(backbone, "finetune", seed=s, epochs=epochs) for s in range(count)]
            observe_together(learners, [task] * count)

        one = seconds(partial(learn, 1), 3)
        for count in (2, 5, 10, 20):
            many = seconds(partial(learn, count), repeats)
            name, note = f"seeds: {count} of {backbone} together", f"{epochs} epochs; peer: one after another"
            out.append(Measurement(name, many, one * count, "s", threads, note, repeats))
    return out
