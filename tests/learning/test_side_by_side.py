"""Models trained side by side on a CPU have the same parameters as single models, bit for bit, also with Adam."""

import copy
from typing import Any

import pytest
import torch

from ergnn.data import make_stream
from ergnn.engine import outputs
from ergnn.engine.objective import make_objective
from ergnn.engine.training import Training
from ergnn.learning import evaluation
from ergnn.learning.learner import Learner
from graphs import random_graph
from nn.cases import labeled, model_of, train


def assert_same_bits(one: torch.nn.Module, other: torch.nn.Module) -> None:
    expected = dict(other.named_parameters())
    for name, value in one.named_parameters():
        assert torch.equal(value, expected[name]), name


@pytest.mark.parametrize(
    ("name", "models", "optimizer"),
    [
        ("gat", 17, "adam"),
        ("gcn", 3, "adamw"),
        ("sage", 17, "sgd"),
        ("gin", 3, "adam"),
        ("sgc", 17, "adamw"),
        ("mlp", 3, "sgd"),
    ],
)
def test_any_number_of_stacked_models_equals_single_models(name: str, models: int, optimizer: str) -> None:
    """Use sizes that do not fill SIMD vectors, for any number of models."""
    parts = [labeled(random_graph(n=30, seed=s % 3, f=5), [0, 3, s, 21], [[0]] * 4, [3], s) for s in range(models)]
    made = [model_of(name, 5, [3], seed=s, dropout=0.5, dtype=torch.float32) for s in range(models)]
    alone, seeds = copy.deepcopy(made), list(range(models))
    training = Training(6, lr=0.05, weight_decay=0.01, optimizer=optimizer)
    train(make_objective(made, parts), training, seeds=seeds, task=1)
    for i in {0, 1, models - 1}:
        train(make_objective([alone[i]], [parts[i]]), training, seeds=[i], task=1)
        assert_same_bits(made[i], alone[i])


@pytest.mark.parametrize(
    ("options", "edges"),
    [
        ([{"backbone": "gcn"}] * 3, 1),
        ([{"backbone": "gcn"}] * 3, outputs.FIELD_EDGES),
        ([{"backbone": "sgc", "backbone_options": {"hops": hops}} for hops in (1, 6, 1)], outputs.FIELD_EDGES),
        ([{"backbone": "gcn", "head": head} for head in ("per-task", "growing", "per-task")], 1),
        ([{"backbone": "gcn", "head": "per-task", "method": "packnet"}] * 3, outputs.FIELD_EDGES),
        ([{"backbone": "gat", "head": "shared", "method": "piggyback"}] * 3, 1),
    ],
    ids=["alike, one at a time", "alike, all at once", "other options", "other heads", "packnet", "piggyback"],
)
def test_one_pass_scores_learners_as_single_passes_do(
    options: list[Any], edges: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU scores learners of different splits in one pass, if their networks are alike."""
    scored = []
    monkeypatch.setattr(outputs, "FIELD_EDGES", edges)
    monkeypatch.setattr(evaluation, "_joins_tasks", lambda _: True)
    score = evaluation._score
    monkeypatch.setattr(evaluation, "_score", lambda *args: scored.append(1) or score(*args))
    streams = [make_stream("cora", split="seeded", split_seed=s).stream for s in range(3)]
    learners = [Learner(seed=s, epochs=5, **{"method": "finetune", **own}) for s, own in enumerate(options)]
    matrices = evaluation.evaluate_streams(learners, streams)
    for learner, stream, matrix in zip(learners, streams, matrices, strict=True):
        assert matrix.to_list()[-1] == pytest.approx([learner.evaluate(task) for task in stream])
    assert len(scored) == 18
