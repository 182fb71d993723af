"""Coverage with early stopping chooses the same nodes as a full count."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.graphs import bag_of_words_graph, synthetic_stream
from ergnn.data import Graph, Task
from ergnn.learning.learner import Learner
from ergnn.replay.selectors import SELECTORS, SelectionContext, best_per_class, distances


def context_of(places: list[list[float]], labels: list[int], per_class: int, seed: int) -> SelectionContext:
    """Candidates at given places of feature space."""
    y, classes = torch.tensor(labels), tuple(sorted(set(labels)))
    graph = Graph(torch.tensor(places), torch.empty(2, 0, dtype=torch.long), y)
    task = Task(0, graph, torch.arange(len(labels)), torch.tensor([0]), torch.tensor([0]), classes)
    learner = Learner("sgc", "finetune", epochs=1, seed=seed)
    learner.observe(task)
    examples = learner.examples(graph, task.train, 0)
    return replace(learner.selection_context(task, examples, per_class, False))


@st.composite
def crowds(draw: st.DrawFn) -> tuple[list[list[float]], list[int]]:
    """Nodes on a small grid, so that many distances, and many counts, are the same."""
    n = draw(st.integers(6, 40))
    place = st.lists(st.integers(0, 4).map(float), min_size=2, max_size=2)
    labels = [0, 1, *draw(st.lists(st.integers(0, 2), min_size=n - 2, max_size=n - 2))]
    return draw(st.lists(place, min_size=n, max_size=n)), labels


@given(
    crowds(),
    st.integers(1, 5),
    st.integers(1, 12),
    st.sampled_from([0.5, 1.0, 1.5, 3.0]),
    st.sampled_from(["euclidean", "cosine"]),
    st.integers(0, 3),
)
@settings(max_examples=150, deadline=None)
def test_early_stopping_never_changes_the_choice(crowd, per_class, parts, d, distance, seed) -> None:
    places, labels = crowd
    per_class = min(per_class, *(labels.count(c) for c in set(labels)))
    context = context_of(places, labels, per_class, seed)
    selector = SELECTORS.create("cm", d=d / 2 if distance == "cosine" else d, distance=distance)
    exact = selector.score(context)
    expected = best_per_class(exact, context)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distances, "CUT_FROM", 0)
        patch.setattr(distances, "PARTS", parts)
        scores, info = selector._score(context)
        chosen = selector.select(context)
    assert torch.equal(chosen.nodes, expected.nodes)
    assert torch.equal(chosen.scores, expected.scores)
    assert ("tie_rate" in chosen.info) == ("counted" not in chosen.info)
    assert 0 < info.get("counted", 1.0) <= 1
    for c in set(labels):
        own = torch.tensor(labels) == c
        last = exact[own].topk(per_class).values[-1]
        assert torch.equal(scores[own & (exact >= last)], exact[own & (exact >= last)])
        assert bool((scores[own & (exact < last)] < last).all())
        assert bool((scores[own] >= exact[own]).all())


def test_a_large_task_is_not_counted_to_the_end_and_a_small_one_is() -> None:
    for nodes, large in ((4000, True), (400, False)):
        graph = bag_of_words_graph(nodes, 3 * nodes, 60, 2)
        task = synthetic_stream(graph, train=nodes // 2 - 60, test=20)[0]
        learner = Learner("gcn", "replay", selector="cm*", epochs=2)
        learner.observe(task)
        info = learner.history[0]["selection"]
        assert ("counted" in info) is large
        assert ("tie_rate" in info) is not large
        assert info.get("counted", 0.0) < 0.5
