"""Results on a GPU equal those on the CPU: masks, selections and scores."""

from dataclasses import replace
from typing import Any

import pytest
import torch

import ergnn.engine.objective
import ergnn.engine.training
from ergnn.data import TaskStream, make_stream
from ergnn.engine.losses import Entry
from ergnn.engine.objective import make_objective
from ergnn.learning import evaluation
from ergnn.learning.evaluation import evaluate_streams
from ergnn.learning.learner import Learner
from ergnn.learning.observing import observe_together

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]

METHODS = ["finetune", "ewc", "mas", "si", "packnet", "piggyback", "agem", "lwf", "derpp", "icarl", "er-ace"]
"""Methods whose steps are recorded."""


def cora() -> TaskStream:
    return make_stream("cora", split="seeded", edges="own").stream


def learned(device: str, backbone: str = "gat", selector: str = "im", epochs: int = 30, **options) -> Learner:
    learner = Learner(backbone, "replay", selector=selector, head="shared", device=device, epochs=epochs, **options)
    for task in cora():
        learner.observe(task)
    return learner


@pytest.mark.parametrize("backbone", ["gat", "gcn", "sage", "gin", "sgc"])
def test_results_on_gpu_and_cpu_are_equal(backbone: str) -> None:
    a, b = learned("cpu", backbone), learned("cuda", backbone)
    assert a.method.buffer.nodes.tolist() == b.method.buffer.nodes.tolist()
    for task in cora():
        assert a.evaluate(task) == pytest.approx(b.evaluate(task), abs=0.01)


@pytest.mark.parametrize("backbone", ["gat", "gcn", "sage", "gin"])
def test_tuned_networks_keep_the_same_epoch_as_on_the_cpu(backbone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded steps on a GPU, the same without recording, and the CPU end with the same accuracy of the best epoch."""
    stream, scores = make_stream("cora", split="seeded").stream, []
    for device, recorded in (("cpu", False), ("cuda", True), ("cuda", False)):
        monkeypatch.setattr(ergnn.engine.training, "GRAPH_FROM", 20 if recorded else 10**9)
        options = {"hidden": 32, "dropout": 0.2}
        learners = [
            Learner(backbone, "finetune", seed=s, network="tuned", epochs=40, device=device, backbone_options=options)
            for s in range(2)
        ]
        observe_together(learners, [stream[0]] * 2)
        scores.append([learner.evaluate(stream[0], "val") for learner in learners])
    assert scores[0] == pytest.approx(scores[1], abs=0.02)
    assert scores[1] == pytest.approx(scores[2], abs=0.02)


def test_table_2_has_the_same_scores_and_remembered_nodes_as_on_the_cpu() -> None:
    """Rows of table 2 at once: all backbones in streams of their own, and GAT with each selector."""
    rows: list[tuple[str, str, dict[str, str]]] = [(name, "finetune", {}) for name in ("gat", "gcn", "sage", "sgc")]
    rows += [("gat", "replay", {"selector": name}) for name in ("random", "mf", "mf*", "cm", "cm*", "im")]
    found = {}
    for device in ("cpu", "cuda"):
        learners = [
            Learner(backbone, method, seed=seed, head="shared", epochs=30, device=device, **options)
            for backbone, method, options in rows
            for seed in range(2)
        ]
        matrices = evaluate_streams(learners, [cora().to(device)] * len(learners))
        nodes = [learner.method.buffer.nodes.tolist() for learner in learners if learner.method.buffer is not None]
        found[device] = nodes, [[x for x in row if x is not None] for matrix in matrices for row in matrix.to_list()]
    assert found["cpu"][0] == found["cuda"][0]
    for here, there in zip(found["cpu"][1], found["cuda"][1], strict=True):
        assert here == pytest.approx(there, abs=0.01)


@pytest.mark.parametrize("method", ["ewc", "si", "packnet", "piggyback", "gem", "lwf"])
def test_methods_with_hooks_side_by_side_equal_single_ones(method: str) -> None:
    stream = cora().to("cuda")

    def make() -> list[Learner]:
        return [Learner("gcn", method, seed=s, head="shared", epochs=5, device="cuda") for s in range(3)]

    together, alone = make(), make()
    for task in stream[:2]:
        observe_together(together, [task] * 3)
    for one, same in zip(alone, together, strict=True):
        for task in stream[:2]:
            one.observe(task)
        for p, q in zip(one.model.parameters(), same.model.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_recorded_steps_of_methods_equal_plain_ones(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, recorded = cora().to("cuda"), []
    original = ergnn.engine.training.recorded_epochs

    def record(*args: Any) -> Any:
        recorded.append(args)
        return original(*args)

    monkeypatch.setattr(ergnn.engine.training, "recorded_epochs", record)

    def learn() -> list[Learner]:
        head = "growing" if method == "er-ace" else "per-task"
        options = {"head": head, "optimizer": "sgd", "lr": 0.1, "epochs": 20, "device": "cuda"}
        learners = [Learner("gcn", method, seed=s, **options) for s in range(3)]
        for task in stream[:2]:
            observe_together(learners, [task] * 3)
        return learners

    fast = learn()
    assert len(recorded) == 2
    monkeypatch.setattr(ergnn.engine.training, "GRAPH_FROM", 10**9)
    for one, same in zip(fast, learn(), strict=True):
        for p, q in zip(one.model.parameters(), same.model.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-4)
    assert len(recorded) == 2


@pytest.mark.parametrize(
    ("head", "method"),
    [("per-task", "finetune"), ("growing", "finetune"), ("per-task", "packnet"), ("shared", "piggyback")],
)
def test_learners_of_different_splits_are_scored_in_one_pass(
    head: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    together = evaluation.logits_together
    monkeypatch.setattr(
        evaluation, "logits_together", lambda models, *args: passes.append(len(models)) or together(models, *args)
    )
    streams = [make_stream("cora", split="seeded", split_seed=s).stream.to("cuda") for s in range(3)]
    learners = [Learner("gcn", method, seed=s, head=head, epochs=20, device="cuda") for s in range(3)]
    for matrix, learner, stream in zip(evaluate_streams(learners, streams), learners, streams, strict=True):
        last = [learner.evaluate(task) for task in stream]
        assert matrix.to_list()[-1] == pytest.approx(last, abs=0.002)
    assert all(models >= len(learners) for models in passes)
    assert len(passes) == len(streams[0])


@pytest.mark.parametrize("entry", [torch.square, torch.abs])
@pytest.mark.parametrize("dense_entries", [1, 1 << 28])
@pytest.mark.parametrize("dense", [True, False])
def test_sums_of_gradients_are_those_on_the_cpu(
    dense: bool, dense_entries: int, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ergnn.engine.objective, "GPU_DENSE_ENTRIES", dense_entries)
    monkeypatch.setattr(ergnn.engine.objective, "GRADIENT_EXAMPLES", 8)
    task = cora()[0]
    x = task.graph.dense_x()
    task = replace(task, graph=replace(task.graph, x=x + 1.0 if dense else x.to_sparse_csr()))
    model = Learner("gcn", "finetune", head="per-task", epochs=5).observe(task).model
    found = []
    for device in ("cpu", "cuda"):
        learner = Learner("gcn", "finetune", head="per-task", epochs=1, device=device)
        moved = TaskStream([task]).to(device)[0]
        learner.observe(moved)
        learner.model.load_state_dict(model.state_dict())
        objective = make_objective([learner.model], [learner.examples(moved.graph, moved.train, 0)])
        found.append(objective.gradient_sums(objective.parameters(), entry))
    for name, expected in found[0].items():
        torch.testing.assert_close(found[1][name].cpu(), expected, rtol=1e-3, atol=1e-6 * float(expected.max()))
