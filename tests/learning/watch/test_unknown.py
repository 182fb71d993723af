"""The score of unknown classes and its threshold."""

from math import inf

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from ergnn.config.errors import InputError
from ergnn.data import Graph
from ergnn.learning.watch import UnknownScore, unknown_rows


def clusters(seed: int, count: int = 60) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows around three centers."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.arange(3).repeat_interleave(count)
    return 3 * torch.eye(3)[labels] + torch.randn(3 * count, 3, generator=rng), labels


def test_the_score_is_that_of_its_formula() -> None:
    rows, labels = clusters(0)
    fitted = UnknownScore.fit(rows, labels + 5, rows[::2])
    m = rows[::2].numpy().mean(0)
    for row, score in zip(rows[:7].numpy(), fitted.score(rows[:7]), strict=True):
        means = [rows[labels == c].numpy().mean(0) - m for c in range(3)]
        assert float(score) == pytest.approx(-max((row - m) @ mu / np.linalg.norm(mu) for mu in means), abs=1e-5)


def test_nodes_of_a_class_without_labels_score_higher() -> None:
    (rows, labels), (test, truth) = clusters(0), clusters(1)
    known = labels < 2
    fitted = UnknownScore.fit(rows[known][::2], labels[known][::2], rows).with_threshold(rows[known][1::2])
    unknown = fitted.score(test) > fitted.threshold
    assert unknown[truth == 2].double().mean() > 0.8
    assert fitted.count(test) == {
        "rate": 0.05,
        "threshold": fitted.threshold,
        "nodes": 180,
        "above": int(unknown.sum()),
    }


def test_known_nodes_are_called_unknown_at_the_stated_rate() -> None:
    """Split conformal: over draws of validation and test nodes, exactly ⌊(n+1) rate⌋ / (n+1) on average."""
    rng = torch.Generator().manual_seed(0)
    fitted = UnknownScore(torch.zeros(1), torch.ones(1, 1))
    above = 0
    for _ in range(2000):
        rows = torch.randn(40, 1, generator=rng)
        above += int(
            fitted.with_threshold(rows[:39], 0.1).score(rows[39:]) > fitted.with_threshold(rows[:39], 0.1).threshold
        )
    assert binomtest(above, 2000, 0.1).pvalue > 0.001


def test_too_few_validation_nodes_call_nothing_unknown() -> None:
    fitted = UnknownScore(torch.zeros(1), torch.ones(1, 1)).with_threshold(torch.randn(18, 1), 0.05)
    assert fitted.threshold == inf
    assert fitted.count(torch.tensor([[-1e9]]))["above"] == 0
    assert fitted.count(torch.tensor([[-1e9]]))["threshold"] is None


@pytest.mark.parametrize("width", [5, 3000])
def test_rows_have_unit_length_and_see_two_hops(width: int) -> None:
    x = torch.rand(6, width, generator=torch.Generator().manual_seed(0))
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    both = torch.cat([edges, edges.flip(0)], 1)
    graph = Graph(x, both, torch.zeros(6, dtype=torch.long))
    rows = unknown_rows(graph, torch.arange(6))
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(6))
    moved = x.clone()
    moved[4] += 1.0
    other = unknown_rows(Graph(moved, both, graph.y), torch.arange(6))
    assert [(a != b).any().item() for a, b in zip(rows, other, strict=True)] == [False, False, True, True, True, False]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="2 rows, 3 labels and 2 background rows"):
        UnknownScore.fit(torch.ones(2, 2), torch.zeros(3), torch.ones(2, 2))
    with pytest.raises(InputError, match="rate is 0; it must be above 0 and below 1"):
        UnknownScore(torch.zeros(1), torch.ones(1, 1)).with_threshold(torch.ones(3, 1), 0)
