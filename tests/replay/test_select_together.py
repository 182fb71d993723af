"""Selection for several models at once equals selection for each, up to rounding."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from ergnn.data import TaskStream
from ergnn.learning.learner import Learner
from ergnn.learning.observing import observe_together
from ergnn.replay.selectors import SELECTORS, SelectionContext, select_together
from ergnn.replay.selectors.influence import Influence
from graphs import random_graph


def contexts(backbone: str = "gcn", head: str = "per-task", count: int = 4) -> list[SelectionContext]:
    """Tasks after the second one, on two graphs; numbers of training nodes differ."""
    graphs = [random_graph(n=60 + 10 * s, f=7, classes=4, p_edge=0.1, seed=s, sparse=True) for s in (0, 1)]
    streams = [TaskStream.from_classes(graphs[s % 2], split="seeded", split_seed=s) for s in range(count)]
    learners = [Learner(backbone, "replay", selector="random", head=head, epochs=8, seed=s) for s in range(count)]
    observe_together(learners, [stream[0] for stream in streams])
    tasks = [stream[1] for stream in streams]
    trained = [learner.method.examples for learner in learners]
    found = []
    for learner, task, examples in zip(learners, tasks, trained, strict=True):
        learner.add_head(task.classes)
        found.append(learner.selection_context(task, examples(learner, task), 2, allow_test=False))
    return found


trained_once = cache(contexts)
"""The same contexts for all selectors, which do not modify them."""


@pytest.mark.parametrize(
    ("name", "backbone", "head"),
    [
        *(("im", "gat", "shared"), ("im", "gcn", "per-task"), ("im", "sage", "growing"), ("im", "mlp", "per-task")),
        *(("mf*", "gat", "shared"), ("mf*", "sgc", "shared"), ("cm*", "gcn", "per-task"), ("cm", "gcn", "per-task")),
        *(("random", "sage", "growing"), ("herding", "sage", "growing"), ("herding", "mlp", "per-task")),
        *(("k-center", "gat", "shared"), ("dslr", "sgc", "shared"), ("dslr", "gcn", "per-task")),
    ],
)
def test_the_same_nodes_are_chosen(name: str, backbone: str, head: str) -> None:
    made = trained_once(backbone, head)
    selectors = [SELECTORS.create(name, **({"tolerance": 1e-5} if name == "im" else {})) for _ in made]
    for selector, context, selection in zip(selectors, made, select_together(selectors, made), strict=True):
        alone = selector.select(context)
        assert torch.equal(selection.nodes, alone.nodes)
        torch.testing.assert_close(selection.scores, alone.scores, rtol=1e-3, atol=1e-5)
        for key, value in alone.info.items():
            if key not in ("iterations", "residual"):
                assert selection.info[key] == (pytest.approx(value, rel=1e-5) if isinstance(value, float) else value)


def test_different_selectors_keep_their_own_options(monkeypatch: pytest.MonkeyPatch) -> None:
    made, calls = contexts(), list[int]()
    together = Influence.select_together

    def counted(self: Influence, group: Any) -> Any:
        calls.append(len(group))
        return together(self, group)

    monkeypatch.setattr(Influence, "select_together", counted)
    options: list[dict[str, Any]] = [{}, {"sign": "harmful"}, {}, {"damping": 0.1}]
    selectors = [Influence(**own) for own in options]
    selections = select_together(selectors, made)
    assert sorted(calls) == [1, 1, 2]
    for selector, context, selection in zip(selectors, made, selections, strict=True):
        assert torch.equal(selection.nodes, selector.select(context).nodes)


def test_embeddings_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, selectors = contexts(), [SELECTORS.create(name) for name in ("mf*", "cm*", "mf", "mf*")]
    expected = [selector.select(context).nodes.tolist() for selector, context in zip(selectors, made, strict=True)]
    monkeypatch.setattr("ergnn.replay.selectors.base.embed", None)  # not called
    assert [selection.nodes.tolist() for selection in select_together(selectors, made)] == expected


def test_a_target_without_a_gradient_has_no_influence() -> None:
    made = contexts(count=2)
    flat = replace(made[0].trained_on, loss=lambda logits, targets, extras: 0.0 * logits.sum(1))
    first, second = Influence().select_together([replace(made[0], trained_on=flat), made[1]])
    assert first.info["iterations"] == 0
    assert second.info["iterations"] > 0
    assert torch.equal(second.nodes, Influence().select(made[1]).nodes)
