"""Columns of different scales are standardized; bags of words and embeddings are not."""

import numpy as np
import pytest
import torch

from ergnn.analytic.inputs import ColumnScales, number_columns
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
