"""One run on several processes, GPUs or machines: each *rank* computes its share of every batch.

``torchrun --nproc-per-node 2 -m ergnn run …`` starts the ranks and identifies each by environment variables. All ranks
hold the graph and take the same steps. Rank r of R computes the examples r, r + R, r + 2R, … of a batch. With the same
θ on all ranks,

    ∇ Σ_i w_i ℓ_i(θ) = Σ_r ∇ Σ_{i ∈ share r} w_i ℓ_i(θ),

so the sum of the ranks' gradients is that of the batch, for any weights. Parameters equal those of a single process up
to rounding, except for dropout: each rank draws its own masks.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ergnn.config.errors import ErgnnError, InputError
from ergnn.engine.losses import Objective, ParamDict

T = TypeVar("T")
MASK_STEP = 0x9E3779B9
LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out", "timed out", "timeout")
"""Messages of gloo when another rank is lost."""


class RanksError(ErgnnError, RuntimeError):
    """Ranks were lost, or disagree."""


@dataclass(frozen=True)
class Ranks:
    """This process within its process group.

    Args:
        rank: rank of this process, from 0; only rank 0 prints and writes.
        size: number of ranks.
        device: device of this rank.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, objective: Objective) -> Objective:
        """Return the examples of an objective that this rank computes."""
        if self.size == 1:
            return objective
        positions = torch.arange(objective.weights.numel(), device=objective.weights.device)
        return objective.batch(*self.pick(positions, objective.weights))

    def pick(self, index: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return this rank's positions and weights of a batch."""
        if index.numel() <= self.rank:  # no example for this rank, which must still take part in the step
            return index[:1], torch.zeros_like(weights[:1])
        return index[self.rank :: self.size], weights[self.rank :: self.size]

    def dropout_keys(self, keys: Tensor) -> Tensor:
        """Return the keys of this rank's masks."""
        return keys if self.rank == 0 else keys.bitwise_xor((self.rank * MASK_STEP + 2**31) % 2**32 - 2**31)

    def sum_gradients(self, params: ParamDict) -> None:
        """Replace the gradients of this rank's share by those of the batch."""
        if self.size == 1:
            return
        values = list(params.values())
        used = values[0].new_tensor([value.grad is not None for value in values])
        grads = [torch.zeros_like(value) if value.grad is None else value.grad for value in values]
        total = torch.cat([used, *(grad.flatten() for grad in grads)])
        sum_over_ranks(total)
        ranks_using, *sums = total.split([len(values), *(value.numel() for value in values)])
        for value, count, grad in zip(values, ranks_using.tolist(), sums, strict=True):
            value.grad = grad.view_as(value) if count else None


ALONE = Ranks(0, 1, torch.device("cpu"))
"""The only rank of a single process."""
_current: Ranks | None = None


def current_ranks() -> Ranks | None:
    """Return the process group that this process has joined; None for a single process."""
    return _current


def launched() -> bool:
    """Return whether ``torchrun`` (or an equivalent launcher) started this process as one of several."""
    return _number("WORLD_SIZE", 1) > 1


def launched_first() -> bool:
    """Return whether this process is the one that prints and writes."""
    return _number("RANK", 0) == 0


@contextmanager
def joined(device: str = "cpu", timeout: float = 600.0) -> Iterator[Ranks | None]:
    """Context manager that joins the launched process group; yields None for a single process.

    If a rank is lost or unresponsive, all others raise a :class:`RanksError`.

    Args:
        device: ``cpu``, or ``cuda`` to assign the GPUs of a machine to its ranks in turn.
        timeout: seconds after which an unresponsive rank counts as lost (a killed one is detected at once).
    """
    global _current
    if not launched():
        yield None
        return
    if _current is not None:
        raise InputError("this process is already a rank; a process group can be joined only once")
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    device_of_rank, backend = _place(device)
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            raise InputError(f"WORLD_SIZE is {size}, but {name} is not in the environment; start with torchrun")
    with _reported(rank, size):
        dist.init_process_group(backend, rank=rank, world_size=size, timeout=timedelta(seconds=timeout))
        _current = Ranks(rank, size, device_of_rank)
        try:
            yield _current
        finally:
            _current = None
            dist.destroy_process_group()


def _place(device: str) -> tuple[torch.device, str]:
    """Return the device and backend of this rank: NCCL if each rank has its own GPU, otherwise gloo."""
    wanted = torch.device(device)
    if wanted.type != "cuda":
        return wanted, "gloo"
    if wanted.index is not None:
        raise InputError(f"device is {device!r}; the GPUs of a machine are assigned to its ranks in turn: use cuda")
    count = torch.cuda.device_count()
    if count == 0:
        raise InputError("device is 'cuda', but this machine has no GPU; use cpu")
    gpu = torch.device("cuda", _number("LOCAL_RANK", 0) % count)
    torch.cuda.set_device(gpu)
    return gpu, "nccl" if _number("LOCAL_WORLD_SIZE", 1) <= count and dist.is_nccl_available() else "gloo"


@contextmanager
def _reported(rank: int, size: int) -> Iterator[None]:
    """Convert connection errors, and torchrun's signal when it loses another rank, to a :class:`RanksError`."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise RanksError(f"rank {rank} of {size} was terminated, as happens when another rank is lost")

    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, stop) if in_main else None
    try:
        yield
    except RuntimeError as error:
        text = " ".join(str(error).split())
        reason = next((words for words in LOST if words in text), None)
        if isinstance(error, ErgnnError) or not (isinstance(error, dist.DistError) or reason):
            raise
        message = f"rank {rank} of {size}: another rank is lost or does not respond ({reason or text[:200]})"
        raise RanksError(message) from error
    finally:
        if in_main:
            signal.signal(signal.SIGTERM, before)


def _number(name: str, default: int | None = None) -> int:
    text = os.environ.get(name, "" if default is None else str(default))
    try:
        return int(text)
    except ValueError:
        raise InputError(
            f"{name} is {text!r} in the environment; torchrun sets it to a number (RANK, WORLD_SIZE, MASTER_ADDR, "
            "MASTER_PORT)"
        ) from None


def broadcast(value: T) -> T:
    """Broadcast the value of rank 0 to all ranks; tensors arrive on the CPU."""
    values: list[Any] = [tree_map_only(Tensor, lambda tensor: tensor.detach().cpu(), value)]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def sum_over_ranks(*tensors: Tensor) -> None:
    """Replace each tensor by its sum over all ranks; the result is the same on every rank."""
    for tensor in tensors:
        whole = tensor.contiguous()
        dist.all_reduce(whole)
        if whole is not tensor:
            tensor.copy_(whole)


def check_agreement(ranks: Ranks, what: str, value: Any) -> None:
    """Raise an error on all ranks if a value is not bitwise the same on all."""
    hashes: list[Any] = [None] * ranks.size
    dist.all_gather_object(hashes, digest(value))
    if len(set(hashes)) > 1:
        listed = ", ".join(f"rank {rank}: {text[:12]}" for rank, text in enumerate(hashes))
        raise RanksError(f"the ranks disagree on {what} ({listed})")


def digest(value: Any) -> str:
    """Compute the SHA-256 of tensors, numbers, strings, and lists and dictionaries of them.

    >>> digest({"a": torch.zeros(2), "b": [1, None]}) == digest({"b": [1, None], "a": torch.zeros(2)})
    True
    >>> digest([0.0]) == digest([-0.0])
    False
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=_described).encode()).hexdigest()


def _described(value: Any) -> Any:
    """Return a description of a value that JSON does not have, equal if tensors are bitwise equal."""
    if not isinstance(value, Tensor):
        return repr(value)
    entries = value.detach().to_dense().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return str(value.dtype), tuple(value.shape), str(value.layout), hashlib.sha256(entries).hexdigest()
