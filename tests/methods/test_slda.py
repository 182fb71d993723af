"""Streaming LDA against scikit-learn's LDA on all rows at once."""

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from ergnn.data import TaskStream
from ergnn.learning.learner import Learner
from ergnn.methods.propagated import StreamingLDA
from graphs import random_graph

GRAPH = random_graph(n=90, f=8, classes=6, seed=2)


def learned(order: tuple[int, ...] = (0, 1, 2, 3, 4, 5), **options: float) -> tuple[Learner, TaskStream]:
    stream = TaskStream.from_classes(GRAPH, class_order=order)
    learner = Learner("sgc", "slda", head="growing", seed=3, width=10, **options)
    for task in stream:
        learner.observe(task)
    return learner, stream


@pytest.mark.parametrize("shrinkage", [0.05, 0.9])
def test_it_equals_lda_on_all_rows_at_once(shrinkage: float) -> None:
    learner, stream = learned(shrinkage=shrinkage)
    method = learner.method
    assert isinstance(method, StreamingLDA)
    train, test = (torch.cat([getattr(task, part) for task in stream]) for part in ("train", "test"))
    batch = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=np.full(6, 1 / 6))
    z = method.encode(GRAPH, torch.arange(90)).numpy()
    batch.fit(z[train.numpy()], GRAPH.y[train].numpy())
    assert learner.predict(test).tolist() == batch.predict(z[test.numpy()]).tolist()
    scores = method.scores(GRAPH, torch.arange(90), torch.arange(6))
    np.testing.assert_allclose(scores.numpy(), batch.decision_function(z) + np.log(6), rtol=1e-9, atol=1e-9)


def test_the_order_of_tasks_and_the_size_of_batches_do_not_matter() -> None:
    one, stream = learned()
    other, _ = learned((5, 2, 0, 4, 1, 3))
    everything, classes = torch.arange(90), torch.arange(6)
    expected = one.method.scores(GRAPH, everything, classes)
    torch.testing.assert_close(other.method.scores(GRAPH, everything, classes), expected)
    single = StreamingLDA(width=10)
    single.seed = 3
    for node in torch.cat([task.train for task in stream]).flip(0):
        single.add(int(GRAPH.y[node]), single.encode(GRAPH, node.reshape(1)))
    torch.testing.assert_close(single.scores(GRAPH, everything, classes), expected)


def test_the_encoder_is_fixed_by_the_seed_and_is_not_counted() -> None:
    learner, _ = learned()
    method = learner.method
    assert isinstance(method, StreamingLDA)
    assert method.nbytes == 8 * (6 * 10 + 6 + 10 * 10)
    other = StreamingLDA(width=10)
    assert not torch.equal(method.encode(GRAPH, torch.arange(4)), other.encode(GRAPH, torch.arange(4)))
    other.load_state_dict(method.state_dict())
    assert torch.equal(method.encode(GRAPH, torch.arange(4)), other.encode(GRAPH, torch.arange(4)))
