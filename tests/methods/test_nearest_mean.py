"""Nearest class mean against dense matrices."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data import Graph, TaskStream
from ergnn.lab.config import RunConfig
from ergnn.lab.run import run
from ergnn.learning.learner import Learner
from ergnn.nn.heads import HEADS
from graphs import dense_powers, graphs, random_graph


def nearest(z: Tensor, means: dict[int, Tensor], nodes: Tensor, classes: list[int], distance: str) -> list[int]:
    found = []
    for v in nodes.tolist():
        if distance == "cosine":
            scores = [float(-torch.cosine_similarity(z[v], means[c], dim=0)) for c in classes]
        else:
            scores = [float((z[v] - means[c]).norm()) for c in classes]
        found.append(classes[scores.index(min(scores))])
    return found


@given(
    graph=graphs(),
    head=st.sampled_from(HEADS),
    hops=st.integers(0, 3),
    distance=st.sampled_from(["euclidean", "cosine"]),
    edges=st.sampled_from(["own", "seen", "all"]),
)
@settings(max_examples=40)
def test_predictions_equal_dense_matrices(graph: Graph, head: str, hops: int, distance: str, edges: str) -> None:
    stream = TaskStream.from_classes(graph, classes_per_task=2, edges=edges)
    learner = Learner("mlp", "nearest-mean", head=head, hops=hops, distance=distance, backbone_options={"hidden": 2})
    means: dict[int, Tensor] = {}
    for task in stream:
        z = dense_powers(task.graph, hops)
        means.update({c: z[task.train[task.graph.y[task.train] == c]].mean(0) for c in task.classes})
        learner.observe(task)
        for earlier in stream[: task.id + 1]:
            expected = nearest(z, means, earlier.test, list(earlier.classes), distance)
            assert learner.predict(earlier.test, earlier.id).tolist() == expected
            if head == "growing":
                expected = nearest(z, means, earlier.test, list(means), distance)
                assert learner.predict(earlier.test).tolist() == expected


def test_a_repeated_class_has_the_mean_of_all_its_nodes() -> None:
    graph = random_graph(n=40, classes=2)
    task = TaskStream.from_classes(graph)[0]
    learner = Learner("sgc", "nearest-mean", head="shared")
    halves = [task.train[::2], task.train[1::2]]
    for i, half in enumerate(halves):
        learner.observe(replace(task, id=i, train=half))
    z = dense_powers(graph, 2)
    means = {c: z[task.train[graph.y[task.train] == c]].mean(0) for c in task.classes}
    assert learner.predict(task.test, 0).tolist() == nearest(z, means, task.test, [0, 1], "euclidean")
    proba = learner.predict_proba(task.test, 0)
    expected = torch.stack([-(z[task.test] - means[c]).square().sum(1) for c in task.classes], dim=1)
    torch.testing.assert_close(proba.double(), torch.softmax(expected, 1), atol=1e-5, rtol=1e-4)


def test_a_run_requires_no_backbone_and_accepts_only_sgc() -> None:
    result = run(RunConfig("cora", method="nearest-mean", protocol="paper", seeds=1))
    assert result.config.learner.backbone == "sgc"
    assert result.fm.mean == 0.0
    assert result.pm.mean > 0.9
    with pytest.raises(InputError, match="backbone is 'gcn', but nearest-mean"):
        RunConfig("cora", method="nearest-mean", backbone="gcn").resolved()
