import math

import pytest
import torch
from torch import Tensor

from ergnn.engine.dropout import dropout_keys, keep_scale

N = 2**18


def key(value: int) -> Tensor:
    return torch.tensor(value, dtype=torch.int32)


def positions(n: int = N) -> Tensor:
    return torch.arange(n, dtype=torch.int32)


def kept(keys: Tensor, p: float, n: int) -> Tensor:
    """Return ``[keys, n]``: 1 if a position is kept under a key, else 0."""
    place = positions(n).expand(keys.numel(), n)
    return (keep_scale(place, keys.reshape(-1, 1), p, torch.float64) > 0).double()


def largest_correlation(rows: Tensor) -> float:
    return float((torch.corrcoef(rows) - torch.eye(rows.size(0), dtype=rows.dtype)).abs().max())


@pytest.mark.parametrize("p", [0.05, 0.6])
def test_the_number_of_dropped_entries_is_binomial(p: float) -> None:
    keys = dropout_keys([0, 1], task=0, epochs=3, sites=2)
    dropped = N - kept(keys, p, N).sum(1)
    assert float((dropped - N * p).abs().max()) < 5 * math.sqrt(N * p * (1 - p))
    spread = float(((dropped - N * p) ** 2).mean()) / (N * p * (1 - p))
    assert 0.1 < spread < 3.0  # chi-square with 12 degrees of freedom, divided by 12


def test_a_mask_depends_only_on_position_and_key() -> None:
    place = positions(4096)
    mask = keep_scale(place, key(9), 0.5, torch.float32)
    order = torch.randperm(4096, generator=torch.Generator().manual_seed(0))
    torch.rand(3)  # the mask does not depend on a generator
    assert torch.equal(keep_scale(place[order], key(9), 0.5, torch.float32), mask[order])
    assert torch.equal(place, positions(4096))  # positions are not modified


def test_masks_of_epochs_sites_and_models_are_uncorrelated() -> None:
    n = 2**16
    masks = kept(dropout_keys([0, 1, 2], task=0, epochs=6, sites=4), 0.5, n)
    assert largest_correlation(masks) < 6 / math.sqrt(n)


@pytest.mark.parametrize("lag", [1, 8, 100, 65536])
def test_positions_are_uncorrelated_at_any_distance(lag: int) -> None:
    masks = kept(dropout_keys([0], task=0, epochs=8, sites=1), 0.6, N)
    for mask in masks:
        pair = torch.stack([mask[:-lag], mask[lag:]])
        assert largest_correlation(pair) < 6 / math.sqrt(N - lag)


def test_all_patterns_of_eight_adjacent_positions_are_equally_frequent() -> None:
    bits = kept(dropout_keys([0], task=0, epochs=1, sites=1), 0.5, N).view(-1, 8)
    count = torch.bincount((bits * 2 ** torch.arange(8.0)).sum(1).long(), minlength=256)
    expected = N / 8 / 256
    chi_square = float(((count - expected) ** 2 / expected).sum())
    assert 255 - 5 * math.sqrt(510) < chi_square < 255 + 6 * math.sqrt(510)


def test_keys_are_distinct_and_independent_of_other_seeds_and_of_the_number_of_epochs() -> None:
    together = dropout_keys([3, 5, 8], task=2, epochs=50, sites=4)
    assert together.shape == (50, 4, 3)
    assert together.unique().numel() == 600
    for i, seed in enumerate([3, 5, 8]):
        assert torch.equal(dropout_keys([seed], task=2, epochs=20, sites=4)[..., 0], together[:20, :, i])


def test_seeds_and_tasks_have_different_keys() -> None:
    first = dropout_keys([0], 0, 20, 2)
    for seed, task in [(1, 0), (0, 1), (-1, 0), (2**31 - 1, 0)]:
        assert not (dropout_keys([seed], task, 20, 2) == first).any()


@pytest.mark.parametrize("keys", [1, 13])
def test_positions_of_rows_are_those_of_their_entries(keys: int) -> None:
    position, key = torch.arange(13, dtype=torch.int32) * 3, torch.arange(keys, dtype=torch.int32) * 7919 + 1
    whole = keep_scale(position, key, 0.3, torch.float32, width=5)
    flat = position.unsqueeze(1) * 5 + torch.arange(5, dtype=torch.int32)
    assert torch.equal(whole, keep_scale(flat, key.unsqueeze(1), 0.3, torch.float32))
    assert set(whole.unique().tolist()) == {0.0, float(torch.tensor(1 / 0.7))}
    square = torch.arange(49, dtype=torch.int32).view(7, 7)
    by_column = keep_scale(square, key[:7].expand(7), 0.3, torch.float32)
    assert torch.equal(by_column, keep_scale(square.T, key[:7].expand(7).unsqueeze(1), 0.3, torch.float32).T)
    assert keep_scale(position[:0], key[:1], 0.3, torch.float32, width=5).shape == (0, 5)
