"""The callback that watches a stream."""

import numpy as np
import pytest
import torch

import ergnn
from ergnn.data import TaskStream
from ergnn.data.tables import EdgeTable, NodeTable, cut
from ergnn.learning.callbacks import Watch
from ergnn.learning.watch import drift_test, node_aspects


def nodes_and_edges(drift: float) -> tuple[NodeTable, EdgeTable]:
    """Three periods of 150 nodes of two classes; the features of the last one are shifted."""
    rng = np.random.default_rng(0)
    label, period = rng.integers(2, size=450), np.repeat([0, 1, 2], 150)
    x = (rng.normal(size=(450, 5)) + 3 * np.eye(5)[label] + drift * (period == 2)[:, None]).astype(np.float32)
    pairs = rng.integers(450, size=(2, 1500))
    pairs = pairs[:, label[pairs[0]] == label[pairs[1]]]
    ids = np.array([str(i) for i in range(450)], object)
    labels = np.array(["a", "b"], object)[label]
    return NodeTable(ids, labels, time=period.astype(float), features=x), EdgeTable(ids[pairs[0]], ids[pairs[1]])


def stream(drift: float) -> TaskStream:
    return cut(*nodes_and_edges(drift), by="time", num_tasks=3, fractions=(0.2, 0.3, 0.5))


def observed(tasks: TaskStream, **options: object) -> tuple[ergnn.Learner, Watch]:
    watch, learner = Watch(**options), ergnn.Learner("gcn", "analytic", head="growing")
    for task in tasks:
        learner.observe(task, callbacks=[watch])
    return learner, watch


@pytest.mark.parametrize("drift", [0.0, 2.0])
def test_only_a_period_that_has_drifted_raises_an_alarm(drift: float) -> None:
    first, second, third = (result["drift"] for result in observed(stream(drift))[1].results)
    assert first is None
    assert not second["alarm"]
    assert third["alarm"] == (drift > 0)
    assert set(third["p"]) == {"features", "neighborhoods", "degrees", "predictions"}


def test_drift_is_that_of_test_nodes_in_the_graph_and_model_after_the_task() -> None:
    tasks = stream(1.0)
    learner, watch = observed(tasks)
    graph = tasks[2].graph
    sides = []
    for nodes in (torch.cat([tasks[0].test, tasks[1].test]), tasks[2].test):
        sides.append({**node_aspects(graph, nodes.numpy()), "predictions": learner.predict_proba(nodes).numpy()})
    assert watch.results[2]["drift"]["p"] == pytest.approx(drift_test(*sides).p, abs=0.01)


def test_calibration_has_the_classes_of_the_learner() -> None:
    learner, watch = observed(stream(0.0))
    found = watch.results[-1]["calibration"]
    assert found["val"] == sum(task.val.numel() for task in stream(0.0))
    right = sum(share * nodes for _, _, nodes, _, share in found["bins"])
    accuracy = np.mean([learner.evaluate(task) for task in stream(0.0)])
    assert right / found["test"] == pytest.approx(accuracy, abs=0.02)


def test_a_shared_head_has_neither_predictions_nor_calibration() -> None:
    watch, learner = Watch(permutations=99, samples=20), ergnn.Learner("gcn", "finetune", epochs=1)
    for task in stream(0.0):
        learner.observe(task, callbacks=[watch])
    found = watch.results[-1]
    assert found["calibration"] is None
    assert set(found["drift"]["p"]) == {"features", "neighborhoods", "degrees"}
    assert (found["drift"]["reference"], found["drift"]["new"]) == (20, 20)
