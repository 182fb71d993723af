"""Repaired influence: the meaning of sign and scale. (test_ridge_kernels.py tests the formula.)"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ergnn.config.errors import InputError, UnknownNameError
from ergnn.engine.objective import make_objective
from ergnn.replay import SELECTORS
from ergnn.replay.selectors.gradients import first_layer_names
from ergnn.testing import example_context


def test_a_step_on_a_helpful_node_lowers_the_validation_loss_and_on_a_harmful_one_raises_it():
    context = example_context()
    context.model.double()
    y = context.graph.y.clone()
    wrong = int(context.nodes[0])
    y[wrong] = next(c for c in context.task.classes if c != int(y[wrong]))
    context = replace(context, task=replace(context.task, graph=replace(context.graph, y=y)))
    scores = SELECTORS.create("rim").score(context)
    assert int(scores.argmin()) == 0, "the node with the wrong label"
    assert float(scores.min()) < -0.01 < 0.01 < float(scores.max()), "there are nodes of both kinds"
    own, val = (make_objective([context.model], [context.examples(split)]) for split in ("train", "val"))
    params = own.parameters()
    (name,) = first_layer_names(context.model, own)
    before = float(val.losses(params).sum())
    for v, score in enumerate(scores.tolist()):
        weight = params[name].clone().requires_grad_()
        (g,) = torch.autograd.grad(own.losses({**params, name: weight})[v], weight)
        stepped = {**params, name: params[name] - 1e-5 * g / g.norm()}
        change = float(val.losses(stepped).sum()) - before
        assert (change < 0) == (score > 0)


def test_the_best_e_of_each_class_are_chosen():
    context = example_context(per_class=2, classes_per_task=3)
    selector = SELECTORS.create("rim")
    scores, labels = selector.score(context).tolist(), context.labels.tolist()
    expected = []
    for c in context.task.classes:
        members = [i for i, label in enumerate(labels) if label == c]
        expected += sorted(members, key=lambda i: -scores[i])[:2]
    assert selector.select(context).nodes.tolist() == context.nodes[expected].tolist()


def test_a_loss_without_a_gradient_scores_zero():
    context = example_context(classes_per_task=1)
    assert SELECTORS.create("rim").score(context).tolist() == [0.0] * 6, "one output is always right"


def test_missing_validation_nodes_need_another_target():
    context = example_context()
    context = replace(context, task=replace(context.task, val=context.task.val[:0]))
    with pytest.raises(InputError, match="no val nodes"):
        SELECTORS.create("rim").select(context)
    assert SELECTORS.create("rim", target="train").select(context).nodes.numel() == 2


def test_test_labels_are_rejected_as_target():
    with pytest.raises(UnknownNameError, match=r"choose one of: train, val$"):
        SELECTORS.create("rim", target="test")
