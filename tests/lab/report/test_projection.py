"""Maps of a class in two dimensions against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ergnn.data.graph import Graph
from ergnn.data.stream import Task
from ergnn.lab.report.projection import class_maps, principal_components, smoothed_features


@pytest.mark.parametrize("shape", [(6, 9), (9, 4), (3, 3), (1, 5), (5, 1)])
def test_principal_components_are_the_covariance_matrix_s(shape: tuple[int, int]) -> None:
    """Coordinates are uncorrelated, with the covariance's largest eigenvalues as variances."""
    rows = np.random.default_rng(0).normal(size=shape)
    points, part = principal_components(rows)
    assert points.shape == (shape[0], 2)
    centered = rows - rows.mean(axis=0)
    eigenvalues = np.sort(np.linalg.eigvalsh(centered.T @ centered))[::-1]
    largest = np.pad(eigenvalues, (0, 2))[:2]
    np.testing.assert_allclose(points.T @ points, np.diag(largest), atol=1e-9)
    total = eigenvalues.sum()
    assert part == pytest.approx(largest.sum() / total if total > 1e-12 else 0.0)
    assert (points.max(axis=0) >= -points.min(axis=0) - 1e-12).all()


def test_smoothing_is_s_squared_x() -> None:
    """Against dense products on a path of four nodes and one alone."""
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    x = torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    adjacency = torch.eye(5, dtype=torch.float64)
    adjacency[edges[1], edges[0]] = 1
    root = adjacency.sum(1).rsqrt().diag()
    expected = torch.linalg.matrix_power(root @ adjacency @ root, 2) @ x.double()
    expected = expected / expected.norm(dim=1, keepdim=True)
    for features in (x, x.to_sparse_csr()):
        graph = Graph(features, edges, torch.zeros(5, dtype=torch.long))
        found = smoothed_features(graph, np.array([3, 0, 4]))
        np.testing.assert_allclose(found, expected[[3, 0, 4]].numpy(), rtol=1e-6)


def test_class_maps_show_every_training_node_and_every_kept_one() -> None:
    count = 1200
    y = torch.arange(count) % 2
    x = torch.rand(count, 4, generator=torch.Generator().manual_seed(1))
    graph = Graph(x, torch.empty(2, 0, dtype=torch.long), y)
    task = Task(0, graph, torch.arange(20), torch.arange(20, 30), torch.arange(30, 60), (1, 0))
    first, second = class_maps(task, keep={1199, 1198})
    assert (first.label, second.label) == (1, 0)
    assert set(first.nodes[first.is_training]) == set(range(1, 20, 2))
    assert 1199 in first.nodes
    assert 1198 in second.nodes
    assert len(first.nodes) <= 10 + 251
    assert first.at(0) is None
    np.testing.assert_array_equal(first.at(int(first.nodes[3])), first.points[3])
