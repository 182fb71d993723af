"""Attention and sums in plain PyTorch equal autograd, and so do the kernels, if Triton's interpreter is available."""

import gc
import os
import subprocess
import sys
import weakref
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from engine.kernels.cases import SHAPES, edges_of, inputs_of, links_of
from engine.kernels.checks import check_attention, check_dropped, check_sums
from ergnn.config.errors import CurvatureError
from ergnn.engine import kernels
from ergnn.engine.dropout import attention_keep
from ergnn.engine.kernels import torch_attention
from ergnn.engine.kernels.attention import attention


@pytest.mark.parametrize("p", [0.0, 0.6])
@pytest.mark.parametrize("name", SHAPES)
def test_attention_equals_autograd(name: str, p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_attention, "CHUNK_EDGES", 7)
    check_attention(name, p, torch.float64, "cpu", 1e-12)


@pytest.mark.parametrize("name", SHAPES)
def test_sums_equal_the_dense_matrix(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "CHUNK_EDGES", 11)
    check_sums(name, 5, torch.float64, "cpu", 1e-12)


def test_rows_in_order_have_the_dropout_of_their_positions() -> None:
    check_dropped("cpu")


@pytest.mark.parametrize("name", SHAPES)
def test_transposed_lists_equal_the_transposed_matrix(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "row_chunks", lambda rowptr: torch_attention.row_chunks(rowptr, 9))
    links = links_of(name)
    back = links.transposed()
    assert (back.targets, back.sources, back.loops) == (links.sources, links.targets, links.loops)
    assert back.transposed() is links
    target, source = edges_of(links)
    assert sorted(zip(*(v.tolist() for v in edges_of(back)), strict=True)) == sorted(
        zip(source.tolist(), target.tolist(), strict=True)
    )


@pytest.mark.parametrize("name", SHAPES)
def test_pieces_of_rows_cover_each_entry_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SEGMENT", 4)
    links = links_of(name)
    pieces = links.segments
    covered = torch.zeros(links.col.numel(), dtype=torch.long)
    slots: dict[int, list[int]] = {}
    for row, begin, end, slot in zip(
        *(v.tolist() for v in (pieces.row, pieces.begin, pieces.end, pieces.slot)), strict=True
    ):
        assert end - begin <= 4
        assert links.rowptr[row] <= begin <= end <= links.rowptr[row + 1]
        covered[begin:end] += 1
        slots.setdefault(row, []).append(slot)
    assert bool((covered == 1).all())
    assert sorted(slots) == list(range(links.targets))
    for row, own in slots.items():
        if len(own) == 1:
            assert own == [-1]
        else:
            at = pieces.merged.tolist().index(row)
            assert sorted(own) == list(range(int(pieces.pointer[at]), int(pieces.pointer[at + 1])))


def test_lists_are_freed_without_the_garbage_collector() -> None:
    links = links_of("rows without links")
    freed = [weakref.ref(links), weakref.ref(links.transposed())]
    gc.disable()
    try:
        del links
        assert [one() for one in freed] == [None, None]
    finally:
        gc.enable()


def test_masks_of_heads_edges_and_keys_are_uncorrelated() -> None:
    target = torch.arange(2000).repeat_interleave(50)
    source = torch.arange(target.numel()) % 2000
    keys = [torch.tensor([key], dtype=torch.int32) for key in (0, 1, -9, 2**31 - 1)]
    masks = torch.cat([attention_keep(target, source, 8, key, 0.6, torch.float64) > 0 for key in keys], 1).double()
    assert float((masks.mean(0) - 0.4).abs().max()) < 0.01
    assert float((torch.corrcoef(masks.T) - torch.eye(32)).abs().max()) < 0.02
    a_row = masks.view(2000, 50, 32).mean(1)
    assert float(a_row.std()) == pytest.approx((0.24 / 50) ** 0.5, rel=0.03)
    ahead = torch.corrcoef(torch.stack([masks[:-1, 0], masks[1:, 0]]))[0, 1]
    assert abs(float(ahead)) < 0.02


def test_second_derivatives_are_refused() -> None:
    name = "GAT's first layer"
    z, a_src, a_dst, *_ = (v.requires_grad_() for v in inputs_of(name, torch.float64))
    links = links_of(name)
    (g,) = torch.autograd.grad(attention(z, a_src, a_dst, links).square().sum(), a_src, create_graph=True)
    with pytest.raises(CurvatureError, match="no second derivatives"):
        torch.autograd.grad(g.sum(), z)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_edges() -> None:
    """One tensor of 64 values for each of a million edges has 256 MB; chunks of 2¹⁶ edges need less in total."""
    program = (
        "import torch\n"
        "torch.set_num_threads(1)\n"
        "from ergnn.engine.kernels.attention import attention\n"
        "from ergnn.engine.kernels import Links\n"
        "from ergnn.engine.kernels import torch_attention\n"
        "torch_attention.CHUNK_EDGES = 1 << 16\n"
        "from ergnn.lab.run import peak_memory_mb\n"
        "n, d = 1000, 4000\n"
        "col = (torch.arange(n * d) * 7919 % n).int()\n"
        "links = Links(torch.arange(n + 1) * d, col, n)\n"
        "before = peak_memory_mb()\n"
        "z = torch.randn(n, 8, 8, requires_grad=True)\n"
        "a = torch.randn(n, 8, requires_grad=True)\n"
        "attention(z, a, a, links).sum().backward()\n"
        "print(peak_memory_mb() - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 0 < float(done.stdout) < 600, "a number for every edge, head and channel would be 1,024 MB"


@pytest.mark.slow
def test_the_kernels_pass_all_checks_in_triton_s_interpreter() -> None:
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed (it comes with torch for CUDA; pip install triton is enough here)")
    here = Path(__file__)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(here.parents[2])}
    command = [sys.executable, "-W", "ignore", str(here.with_name("interpreted.py"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
