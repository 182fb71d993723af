"""Kernels between rows of φ: the inner product, and a Gaussian."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ergnn.config.errors import InputError

ROW_BLOCK = {"cpu": 1 << 8, "cuda": 1 << 13}
"""Rows of one product, by device: of few, threads and a GPU take longer to start than to compute."""


@dataclass(frozen=True)
class Kernel:
    """``k(u, v) = ⟨u, v⟩``, or ``exp(−s² |u − v|² / 2)`` with ``s > 0``.

    Both are of rows of φ with their constant column, which cancels in ``u − v``.

    Args:
        s: inverse length scale of the Gaussian; 0 is the inner product (``linear``).
    """

    s: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.s < float("inf"):
            raise InputError(f"s is {self.s}; it must be 0 (the linear kernel) or more")

    @property
    def name(self) -> str:
        """``linear`` or ``rbf``."""
        return "rbf" if self.s else "linear"

    def __call__(self, u: Tensor, v: Tensor) -> Tensor:
        """Return ``k`` of all pairs, ``[n, m]``, in float64; products are in the dtype of the rows."""
        return self.of_products(products(u, v), squares(u), squares(v))

    def of_products(self, out: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Return ``k`` from inner products ``[n, m]``, which are overwritten, and the squared norms of both sides."""
        if self.s:
            step = ROW_BLOCK[out.device.type]
            for part, square in zip(out.split(step), u.split(step), strict=True):
                part.mul_(-2).add_(square[:, None]).add_(v).clamp_(min=0).mul_(-0.5 * self.s**2).exp_()
        return out


LINEAR = Kernel()
GAUSSIAN = tuple(map(Kernel, (0.7, 1.0, 1.4, 2.0)))
KERNELS = {"auto": (LINEAR, *GAUSSIAN), "linear": (LINEAR,), "rbf": GAUSSIAN}
"""Candidates by option."""


def squares(u: Tensor) -> Tensor:
    """Return the squared norm of each row, in float64."""
    return torch.linalg.vector_norm(u, dim=1, dtype=torch.float64).square_()


def products(u: Tensor, v: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return the inner products of all rows, ``[n, m]``; for ``u is v``, one triangle is computed."""
    out = torch.empty(u.size(0), v.size(0), dtype=dtype, device=u.device)
    step = ROW_BLOCK[u.device.type]
    for first in range(0, u.size(0), step):
        rows, stop = slice(first, first + step), min(first + step, v.size(0)) if u is v else v.size(0)
        out[rows, :stop] = u[rows] @ v[:stop].T
        if u is v:
            out[:first, rows] = out[rows, :first].T
    return out


def all_products(rows: Tensor) -> Tensor:
    """Return the inner products of labeled rows, in their dtype; an error if their head does not fit in the memory."""
    needed, free = 16 * rows.size(0) ** 2, free_bytes(rows.device)
    if free is not None and needed > free:
        raise InputError(
            f"the kernel of {rows.size(0):,} labeled nodes takes {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are "
            "free; use kernel='linear', and a sketch of fewer columns than labeled nodes"
        )
    return products(rows, rows, rows.dtype)


def free_bytes(device: torch.device) -> int | None:
    """Return the free memory of a device; None if it is unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo") as file:
            return next(1024 * int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None
