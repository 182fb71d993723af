import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ergnn.engine.features import SparsePattern, spmm
from nn.cases import assert_near


@st.composite
def products(draw: st.DrawFn) -> tuple[SparsePattern, Tensor, Tensor, Tensor]:
    """Generate a sparse pattern, its values, the dense matrix, and a dense factor; rows and sizes may be empty."""
    rows, cols, width = draw(st.integers(0, 6)), draw(st.integers(0, 6)), draw(st.integers(1, 3))
    column = st.integers(0, max(cols - 1, 0))
    entries = [draw(st.lists(column, max_size=4)) if cols else [] for _ in range(rows)]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    rowptr = torch.tensor([sum(len(row) for row in entries[:i]) for i in range(rows + 1)])
    col = torch.tensor([c for row in entries for c in row], dtype=torch.long)
    value = torch.randn(col.numel(), generator=generator, dtype=torch.float64)
    dense = torch.zeros(rows, cols, dtype=torch.float64)
    place = 0
    for r, row in enumerate(entries):
        for c in row:  # duplicate entries are summed
            dense[r, c] += value[place]
            place += 1
    factor = torch.randn(cols, width, generator=generator, dtype=torch.float64)
    return SparsePattern(rowptr, col, (rows, cols)), value, dense, factor


def cubes(matrix: Tensor) -> Tensor:
    return (matrix**3).sum()


@settings(max_examples=60)
@given(products())
def test_the_product_and_its_gradient_equal_dense_matrices(case: tuple) -> None:
    pattern, value, dense, factor = case
    assert_near(spmm(pattern, value, factor), dense @ factor, 1e-12)
    leaf = factor.clone().requires_grad_()
    cubes(spmm(pattern, value, leaf)).backward()
    assert_near(leaf.grad, 3 * dense.T @ (dense @ factor) ** 2)


@settings(max_examples=60)
@given(products())
def test_hessian_products_equal_dense_matrices(case: tuple) -> None:
    pattern, value, dense, factor = case
    tangent, leaf = factor.flip(0) + 1, factor.clone().requires_grad_()
    (first,) = torch.autograd.grad(cubes(spmm(pattern, value, leaf)), leaf, create_graph=True)
    (second,) = torch.autograd.grad((first * tangent).sum(), leaf)
    assert_near(second, 6 * dense.T @ ((dense @ factor) * (dense @ tangent)))


@settings(max_examples=30)
@given(products())
def test_values_are_permuted_to_the_transpose(case: tuple) -> None:
    pattern, value, dense, _ = case
    transpose, order = pattern.transposed
    assert transpose.shape == dense.T.shape
    assert_near(spmm(transpose, value[order], torch.eye(dense.size(0), dtype=torch.float64)), dense.T, 1e-12)
    assert pattern.transposed[0] is transpose  # built once


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 3)])
def test_a_matrix_without_entries_gives_zeros_and_a_gradient_of_zeros(shape: tuple[int, int]) -> None:
    pattern = SparsePattern(torch.zeros(shape[0] + 1, dtype=torch.long), torch.zeros(0, dtype=torch.long), shape)
    factor = torch.ones(shape[1], 2, requires_grad=True)
    out = spmm(pattern, torch.zeros(0), factor)
    out.sum().backward()
    assert torch.equal(out, torch.zeros(shape[0], 2))
    assert torch.equal(factor.grad, torch.zeros(shape[1], 2))


def test_a_non_contiguous_gradient_is_supported() -> None:
    pattern = SparsePattern(torch.tensor([0, 2, 3]), torch.tensor([0, 2, 1]), (2, 3))
    value = torch.tensor([2.0, 3.0, 5.0])
    dense = torch.tensor([[2.0, 0.0, 3.0], [0.0, 5.0, 0.0]])
    factor = torch.randn(3, 2, requires_grad=True)
    weights = torch.tensor([[1.0, 7.0], [2.0, 4.0]])
    (spmm(pattern, value, factor).T * weights.T).sum().backward()
    assert_near(factor.grad, dense.T @ weights, 1e-6)
    expanded = torch.randn(1, 2).expand(3, 2)
    assert_near(spmm(pattern, value, expanded), dense @ expanded, 1e-6)
