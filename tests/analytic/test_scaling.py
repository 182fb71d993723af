"""Columns of different scales are standardized; bags of words and embeddings are not."""

import numpy as np
import pytest
import torch

from analytic.dense import dense_phi, dense_s
from ergnn.analytic import FEATURE_MAPS, Features, Inputs, NormalizedAdjacency
from ergnn.analytic.explain import split_by_feature
from ergnn.analytic.inputs import WORD_CLIP, ColumnScales, number_columns
from ergnn.data import Graph
from ergnn.data.scale import CLIP, TEXT_LENGTH

RNG = np.random.default_rng(0)
WORDS = (RNG.random((300, 200)) < 0.05).astype(np.float32)
TABLE = RNG.normal(size=(300, 6)).astype(np.float32)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize(
    ("x", "numbers"),
    [
        (WORDS, []),
        (WORDS * RNG.uniform(0.2, 3, (1, 200)).astype(np.float32), []),
        (RNG.normal(size=(300, 128)).astype(np.float32), []),
        (TABLE, list(range(6))),
        (TABLE * 10.0 ** np.arange(6, dtype=np.float32), list(range(6))),
        (np.concatenate([WORDS, 1e6 * np.abs(TABLE[:, :1])], 1), [200]),
        (
            RNG.normal(size=(300, 100)).astype(np.float32) * np.geomspace(1, 1e4, 100, dtype=np.float32),
            list(range(100)),
        ),
        (np.zeros((10, 4), np.float32), []),
    ],
    ids=["words", "tf-idf", "embedding", "table", "scales", "words and a number", "many scales", "nothing"],
)
def test_which_columns_are_numbers(x: np.ndarray, numbers: list[int], sparse: bool) -> None:
    given = torch.from_numpy(np.asarray(x, np.float32))
    assert number_columns(given.to_sparse_csr() if sparse else given) == numbers


def test_scales_of_columns_do_not_matter() -> None:
    factors = torch.tensor([1e-6, 1.0, 1e6, 1e6, 1e-6, 1.0])
    plain, scaled = (torch.from_numpy(TABLE), torch.from_numpy(TABLE) * factors)
    first, second = (ColumnScales.fit(x).apply(x) for x in (plain, scaled))  # type: ignore[union-attr]
    ratio = (second.std(0) / first.std(0)).numpy()
    assert (np.abs(np.log2(ratio)) <= 0.26).all()
    assert first.abs().max() <= CLIP


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
def test_words_keep_their_share_beside_a_large_number(sparse: bool) -> None:
    x = torch.from_numpy(np.concatenate([WORDS, 1e6 * np.abs(TABLE[:, :1])], 1).astype(np.float32))
    scales = ColumnScales.fit(x)
    out = scales.apply(x.to_sparse_csr() if sparse else x)
    assert (out.layout == torch.sparse_csr) == sparse
    dense = out.to_dense()
    assert torch.allclose(dense[:, :200].norm(dim=1), torch.full((300,), TEXT_LENGTH), atol=1e-5)
    assert dense[:, 200].std() < 2
    assert torch.equal(dense[:, :200] > 0, torch.from_numpy(WORDS) > 0)


@pytest.mark.parametrize("words", [False, True])
def test_scales_are_restored(words: bool) -> None:
    x = torch.from_numpy(WORDS if words else TABLE)
    scales = ColumnScales.fit(x, range(x.size(1)), words)
    assert scales is not None
    assert ColumnScales.from_tensor(scales.to_tensor()) == scales
    before = ColumnScales.from_tensor(scales.to_tensor()[:, :4])  # as earlier versions stored them
    assert (before.clip, before.square) == (CLIP, 0.0)
    assert scales.clip == (WORD_CLIP if words else CLIP)
    assert scales.apply(x).abs().max() <= scales.clip


@pytest.mark.parametrize("name", ["hops", "ppr"])
@pytest.mark.parametrize("few", [True, False])
def test_long_rows_of_a_table_stay_longer(name: str, few: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(300, (2, 900), generator=generator)
    graph = Graph(torch.from_numpy(TABLE), edges, torch.zeros(300, dtype=torch.long))
    scales = ColumnScales.fit(graph.x)
    assert scales is not None
    features = Features(FEATURE_MAPS.create(name), NormalizedAdjacency(graph), Inputs(graph, scales=scales))
    x = scales.apply(graph.x).double().numpy()
    phi = dense_phi(name, dense_s(graph), x, square=6.0)
    nodes = torch.arange(3 if few else 300)
    np.testing.assert_allclose(features.rows(nodes), phi[: len(nodes)], atol=1e-9)
    weight = torch.randn(phi.shape[1], 2, dtype=torch.float64, generator=generator)
    np.testing.assert_allclose(features.scores(weight), phi @ weight.numpy(), atol=1e-9)
    split, constant = split_by_feature(features, 7, weight)
    np.testing.assert_allclose(split.sum((0, 1)) + constant, phi[7] @ weight.numpy(), atol=1e-9)
