"""The device and the CPU threads to compute on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph

SMALL_WORK = 10_000_000
"""Below as many features and edges, one thread is as fast as several, and much faster on a busy machine."""

_told: ContextVar[bool] = ContextVar("told", default=False)


def find_device(device: torch.device | str) -> torch.device:
    """Return the device, or raise an error if it is unavailable."""
    try:
        named = torch.device(device)
    except RuntimeError:
        raise InputError(f"unknown device {str(device)!r}; choose cpu, cuda or a numbered GPU such as cuda:0") from None
    try:
        return torch.empty(0, device=named).device  # "cuda" becomes "cuda:0", as in tensors
    except (RuntimeError, AssertionError) as error:  # unsupported by this build or machine
        reason = str(error).partition("\n")[0]
        raise InputError(f"device {str(device)!r} is unavailable ({reason}); choose cpu") from None


def set_threads(count: int) -> None:
    """Compute on a number of CPU threads from now on, for work of any size."""
    _told.set(True)
    torch.set_num_threads(count)


@contextmanager
def use_threads(count: int | None, *graphs: Graph) -> Iterator[None]:
    """Compute on a number of CPU threads, and restore the process's setting at the end.

    Args:
        count: by default one thread if all graphs are small, otherwise the process's setting, as also inside another
            such block and after :func:`set_threads`.
        graphs: the graphs to learn or predict.
    """
    before = torch.get_num_threads()
    if count is None:
        small = not _told.get() and sum(size_of(graph) for graph in graphs) < SMALL_WORK
        count = 1 if small else before
    elif count < 1:
        raise InputError(f"threads is {count}; it must be 1 or more")
    token = _told.set(True)
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _told.reset(token)


def size_of(graph: Graph) -> int:
    """Return the number of stored features and of edges."""
    return (graph.x.values() if graph.is_sparse else graph.x).numel() + graph.num_edges
