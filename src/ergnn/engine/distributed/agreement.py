"""Consistency of ranks: broadcast from the first rank, sums, and comparison by hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ergnn.engine.distributed.ranks import Ranks, RanksError

T = TypeVar("T")


def broadcast(value: T) -> T:
    """Broadcast the value of rank 0 to all ranks; tensors arrive on the CPU."""
    values: list[Any] = [_on_cpu(value)]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def sum_over_ranks(*tensors: Tensor) -> None:
    """Replace each tensor by its sum over all ranks; the result is the same on every rank."""
    for tensor in tensors:
        whole = tensor.contiguous()
        dist.all_reduce(whole)
        if whole is not tensor:
            tensor.copy_(whole)


def check_agreement(ranks: Ranks, what: str, value: Any) -> str:
    """Return the hash of a value, or raise an error on all ranks if the value is not bitwise the same on all."""
    own = digest(value)
    found: list[Any] = [None] * ranks.size
    dist.all_gather_object(found, own)
    if len(set(found)) > 1:
        each = ", ".join(f"rank {rank}: {text[:12]}" for rank, text in enumerate(found))
        raise RanksError(f"the ranks disagree on {what} ({each})")
    return own


def digest(value: Any) -> str:
    """Compute the SHA-256 of tensors, numbers, strings, and lists and mappings of them.

    >>> digest({"a": torch.zeros(2), "b": [1, None]}) == digest({"b": [1, None], "a": torch.zeros(2)})
    True
    >>> digest([0.0]) == digest([-0.0])
    False
    """
    state = hashlib.sha256()
    _feed(state, value)
    return state.hexdigest()


def _feed(state: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        state.update(f"{value.dtype}{tuple(value.shape)}{value.layout}".encode())
        for part in _dense_parts(value.detach()):
            state.update(part.contiguous().cpu().flatten().view(torch.uint8).numpy().tobytes())
    elif isinstance(value, Mapping):
        state.update(b"{")
        for key in sorted(value, key=str):
            state.update(f"{key!r}:".encode())
            _feed(state, value[key])
        state.update(b"}")
    elif isinstance(value, list | tuple):
        state.update(b"[")
        for part in value:
            _feed(state, part)
            state.update(b",")
        state.update(b"]")
    else:
        state.update(repr(value).encode())


def _dense_parts(value: Tensor) -> list[Tensor]:
    if value.layout == torch.sparse_csr:
        return [value.crow_indices(), value.col_indices(), value.values()]
    if value.layout == torch.sparse_coo:
        whole = value.coalesce()
        return [whole.indices(), whole.values()]
    return [value]


def _on_cpu(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, Mapping):
        return {key: _on_cpu(inner) for key, inner in value.items()}
    return [_on_cpu(inner) for inner in value] if isinstance(value, list) else value
