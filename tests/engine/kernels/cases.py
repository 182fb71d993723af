"""Neighbor lists of many shapes, and reference attention edge by edge."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ergnn.data.csr import targets
from ergnn.engine.dropout import attention_keep
from ergnn.engine.kernels import Links

SHAPES = {
    # name: targets, sources, links, heads, width, loops, kind
    "GAT's first layer": (60, 60, 400, 8, 8, True, "random"),
    "GAT's last layer": (60, 60, 400, 1, 5, True, "random"),
    "fewer targets than sources": (12, 70, 150, 1, 7, False, "random"),
    "rows without links": (80, 50, 20, 2, 4, False, "random"),
    "no links at all": (5, 4, 0, 1, 3, False, "random"),
    "no links but each row's own": (9, 9, 0, 2, 2, True, "random"),
    "one hub, as source and target": (40, 40, 900, 3, 6, True, "hub"),
    "own links in the lists too": (30, 30, 200, 2, 8, True, "loops"),
    "links that are there twice": (25, 25, 300, 1, 16, False, "twice"),
}


def lists(rows: int, sources: int, count: int, kind: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(rows, (count,), generator=generator)
    source = torch.randint(sources, (count,), generator=generator)
    if kind == "hub":
        target[: count // 2], source[count // 2 : 3 * count // 4] = 1, 2
    if kind == "loops":
        target[: count // 3] = source[: count // 3] % rows
    key = target * sources + source
    key = torch.cat([key, key[: count // 2]]).sort()[0] if kind == "twice" else torch.unique(key)
    size = torch.bincount(key // sources, minlength=rows) if key.numel() else torch.zeros(rows, dtype=torch.long)
    return torch.cat([size.new_zeros(1), size.cumsum(0)]), (key % sources).int()


def links_of(name: str, device: str = "cpu", seed: int = 0) -> Links:
    rows, sources, count, _, _, loops, kind = SHAPES[name]
    rowptr, col = lists(rows, sources, count, kind, seed)
    return Links(rowptr.to(device), col.to(device), sources, loops)


def inputs_of(name: str, dtype: torch.dtype, device: str = "cpu", seed: int = 1) -> list[Tensor]:
    """Return z, a_src and a_dst, a tangent of each, and a gradient of the output."""
    rows, sources, _, heads, width, _, _ = SHAPES[name]
    generator = torch.Generator().manual_seed(seed)
    shapes = [(sources, heads, width), (sources, heads), (rows, heads)] * 2 + [(rows, heads, width)]
    return [torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).to(device) for shape in shapes]


def edges_of(links: Links) -> tuple[Tensor, Tensor]:
    target, source = targets(links.rowptr), links.col.long()
    if links.loops:
        other, own = target != source, torch.arange(links.targets, device=target.device)
        target, source = torch.cat([target[other], own]), torch.cat([source[other], own])
    return target, source


def written_out(
    z: Tensor, a_src: Tensor, a_dst: Tensor, links: Links, slope: float, key: Tensor | None, p: float
) -> Tensor:
    """Compute a softmax over the edges into each row and a weighted sum, with autograd operations."""
    target, source = edges_of(links)
    score = F.leaky_relu(a_src[source] + a_dst[target], slope)
    shift = score.detach().max() if score.numel() else 0.0
    weight = torch.exp(score - shift)
    alpha = weight / a_dst.new_zeros(a_dst.shape).index_add(0, target, weight)[target]
    if key is not None:
        alpha = alpha * attention_keep(target, source, z.size(1), key, p, z.dtype)
    return z.new_zeros(links.targets, *z.shape[1:]).index_add(0, target, alpha.unsqueeze(-1) * z[source])


def off(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference relative to the largest entry."""
    if not expected.numel():
        return 0.0
    return float(
        ((actual.double() - expected.double()).abs().max() / expected.double().abs().max().clamp(min=1e-2)).detach()
    )
