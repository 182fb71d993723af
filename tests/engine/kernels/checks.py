"""Checks of attention, sums, dropout and projections, for all implementations."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engine.kernels.cases import edges_of, inputs_of, links_of, off, written_out
from ergnn.engine.dropout import DropoutStream, keep_scale
from ergnn.engine.features import DroppedFeatures, SparseFeatures, SparsePattern
from ergnn.engine.kernels import neighbor_sum
from ergnn.engine.kernels.attention import attention
from ergnn.engine.slots import SlotRows


def check_attention(name: str, p: float, dtype: torch.dtype, device: str, tolerance: float, seed: int = 0) -> None:
    """Compare output, gradients and directional derivatives with autograd in double precision."""
    links = links_of(name, device, seed)
    key = torch.tensor([20240607 + seed], dtype=torch.int32, device=device)
    *exact, weight = inputs_of(name, torch.float64, device, seed)
    values, along = exact[:3], tuple(exact[3:])

    def reference(*point: Tensor) -> Tensor:
        return written_out(*point, links, 0.2, key if p else None, p)

    def mine(*point: Tensor) -> Tensor:
        return attention(*point, links, 0.2, key, p)

    expected = _derivatives(reference, values, along, weight)
    actual = _derivatives(mine, [v.to(dtype) for v in values], tuple(v.to(dtype) for v in along), weight.to(dtype))
    for what, value in expected.items():
        assert actual[what].dtype == dtype
        assert bool(torch.isfinite(actual[what]).all()), what
        assert off(actual[what], value) <= tolerance, (name, p, what, off(actual[what], value))


def _derivatives(
    function: Callable[..., Tensor], values: list[Tensor], along: tuple[Tensor, ...], weight: Tensor
) -> dict[str, Tensor]:
    points = [value.clone().requires_grad_() for value in values]
    out = function(*points)
    found = {"output": out.detach()}
    for name, value in zip(["z", "a_src", "a_dst"], torch.autograd.grad(out, points, weight), strict=True):
        found[f"gradient of {name}"] = value
    probe = torch.zeros_like(weight, requires_grad=True)
    pulled = torch.autograd.grad(function(*points), points, probe, create_graph=True)
    found["gradient of the gradient"] = torch.autograd.grad(pulled, probe, along)[0]
    return found


def check_sums(name: str, width: int, dtype: torch.dtype, device: str, tolerance: float) -> None:
    links = links_of(name, device)
    target, source = edges_of(links)
    matrix = torch.zeros(links.targets, links.sources, dtype=torch.float64, device=device)
    matrix.index_put_((target, source), matrix.new_ones(target.numel()), accumulate=True)
    generator = torch.Generator().manual_seed(width)
    h = torch.randn(links.sources, width, generator=generator, dtype=torch.float64).to(device)
    weight = torch.randn(links.targets, width, generator=generator, dtype=torch.float64).to(device)
    x = h.to(dtype).requires_grad_()
    out = neighbor_sum(x, links)
    assert off(out, matrix @ h) <= tolerance
    assert off(torch.autograd.grad(out, x, weight.to(dtype))[0], matrix.T @ weight) <= tolerance


def check_dropped(device: str) -> None:
    """Check that dropout and its gradient are bitwise equal to the reference."""
    key = torch.tensor([-77], dtype=torch.int32, device=device)
    h = torch.randn(57, 33, generator=torch.Generator().manual_seed(0)).to(device).requires_grad_()
    position = torch.arange(h.numel(), dtype=torch.int32, device=device).view_as(h)
    for p in (0.1, 0.5, 0.6):

        def drop(value: Tensor, p: float = p) -> Tensor:
            return DropoutStream(key.unsqueeze(0))(value, p, None, None)

        mask, out = keep_scale(position, key, p, h.dtype), drop(h)
        assert torch.equal(out, h * mask)
        assert torch.equal(torch.autograd.grad(out.sum(), h)[0], mask)


def check_projection(device: str, sizes: Sequence[int], features: int, width: int, p: float, sparse: bool) -> None:
    """Compare the product of features with dropout and its gradient with a dense product in double precision."""
    generator = torch.Generator().manual_seed(len(sizes) + features + width)
    count, models = sum(sizes), len(sizes)
    x = torch.randn(count, features, generator=generator)
    x = x * (torch.rand(x.shape, generator=generator) < 0.1) if sparse else x
    weight = torch.randn(models, features, width, generator=generator)
    along = torch.randn(count, width, generator=generator)
    keys = torch.randint(-(2**31), 2**31, (models,), generator=generator).int()
    wanted, gradient = [], []
    for i, part in enumerate(x.double().split(list(sizes))):
        position = torch.arange(part.numel(), dtype=torch.int32).view_as(part)
        kept = part * keep_scale(position, keys[i : i + 1], p, torch.float64)
        wanted.append(kept @ weight[i].double())
        gradient.append(kept.T @ along.double().split(list(sizes))[i])
    slot = torch.repeat_interleave(torch.arange(models), torch.tensor(sizes))
    moved = _sparse_features(x, slot, sizes, device) if sparse else x.to(device)
    w = weight.to(device).requires_grad_()
    out = DroppedFeatures(moved, keys.to(device), p).project(w, SlotRows(slot.to(device), models, models))
    assert off(out.cpu(), torch.cat(wanted)) <= 1e-5
    (found,) = torch.autograd.grad(out, w, along.to(device))
    assert off(found.cpu(), torch.stack(gradient)) <= 1e-5


def _sparse_features(x: Tensor, slot: Tensor, sizes: Sequence[int], device: str) -> SparseFeatures:
    row, col = x.nonzero().unbind(1)
    rowptr = torch.cat([torch.zeros(1).long(), (x != 0).sum(1).cumsum(0)])
    models, features = len(sizes), x.size(1)
    starts = torch.tensor([0, *sizes]).cumsum(0)[:-1]
    pattern = SparsePattern(rowptr.to(device), (slot[row] * features + col).to(device), (x.size(0), models * features))
    position = ((row - starts[slot[row]]) * features + col).int()
    return SparseFeatures(pattern, x[row, col].to(device), position.to(device), slot[row].to(device))


PROJECTIONS = [([40], 33, 16, 0.5), ([70, 3, 129], 100, 5, 0.6), ([1, 0, 64, 65], 32, 70, 0.1)]
"""Rows of each model, features, outputs and dropout probability."""
