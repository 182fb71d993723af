"""The device and the CPU threads to compute on, and recording of work on a GPU as CUDA graphs.

Launches of a recorded graph take less time than those from Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor

from ergnn.config.errors import InputError
from ergnn.data.graph import Graph

SMALL_WORK = 10_000_000
"""Below as many entries and edges, one thread is as fast as several, and much faster on a busy machine."""

_threads: ContextVar[int | None] = ContextVar("threads", default=None)
"""Threads of large work; None before anything set them."""


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


def set_threads(count: int | None) -> None:
    """Compute on a number of CPU threads from now on; with None on one, and on all for large work."""
    _threads.set(count or torch.get_num_threads())
    torch.set_num_threads(count or 1)


@contextmanager
def use_threads(count: int | None, *graphs: Graph, entries: int = 0) -> Iterator[None]:
    """Compute on a number of CPU threads, and restore the process's setting at the end.

    Args:
        count: by default one thread for small work, otherwise the process's setting. Inside another such block, and
            after :func:`set_threads`, small work does not change it.
        graphs: the graphs to learn or predict.
        entries: size of a matrix that is computed.
    """
    before, most = torch.get_num_threads(), _threads.get()
    if count is None:
        entries += sum((graph.x.values() if graph.is_sparse else graph.x).numel() + graph.num_edges for graph in graphs)
        small = before if most is not None else 1
        most = most or before
        count = small if entries < SMALL_WORK else most
    elif count < 1:
        raise InputError(f"threads is {count}; it must be 1 or more")
    else:
        most = count
    token = _threads.set(most)
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _threads.reset(token)


@cache
def side_stream(device: torch.device, number: int = 0) -> torch.cuda.Stream:
    """Return a GPU stream; each has a workspace for matrix products, so that they are used again."""
    return torch.cuda.Stream(device)


@contextmanager
def on_stream(stream: torch.cuda.Stream | None) -> Iterator[None]:
    """Run work on a GPU stream, after earlier and before later work on the current one; None for no other stream."""
    if stream is None:
        yield
        return
    current = torch.cuda.current_stream(stream.device)
    stream.wait_stream(current)
    try:
        with torch.cuda.stream(stream):
            yield
    except BaseException:
        stream.synchronize()  # the tensors that it uses are freed next
        raise
    finally:
        current.wait_stream(stream)


class Recorded:
    """A function of a tensor that is recorded after its first call; later calls replay the recording.

    The first call compiles kernels. Its result is used as well, and recording takes place while the GPU computes it.
    All later results are one tensor, which the next call overwrites.

    Args:
        call: function that never synchronizes with the GPU. Derivatives run on the stream of their forward pass, so
            if ``call`` does not run the forward pass, that must have run on the same ``stream``.
        stream: stream of the first call and the recording; later calls run on the current stream.
    """

    def __init__(self, call: Callable[[Tensor], Tensor], stream: torch.cuda.Stream) -> None:
        self._call, self.stream = call, stream  # keeps what the recording reads
        self._recording: tuple[torch.cuda.CUDAGraph, Tensor, Tensor] | None = None

    def __call__(self, value: Tensor) -> Tensor:
        if self._recording is not None:
            graph, argument, result = self._recording
            argument.copy_(value)
            graph.replay()
            return result
        argument, device = value.clone(), value.device
        if torch.cuda.mem_get_info(device)[0] < torch.cuda.memory_reserved(device):
            torch.cuda.empty_cache()  # a graph has memory of its own and cannot use cached blocks
        with on_stream(self.stream):
            first = self._call(argument)
            with suppress(torch.OutOfMemoryError):
                self._recording = self._record(argument)
            if self._recording is None:  # the memory that PyTorch may use is full of cached blocks
                self.stream.synchronize()
                torch.cuda.empty_cache()
                self._recording = self._record(argument)
        return first

    def _record(self, argument: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor]:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        try:
            result = self._call(argument)
        except BaseException:
            with suppress(RuntimeError):  # if the error invalidated the recording; the stream must not stay in it
                graph.capture_end()
            raise
        graph.capture_end()
        return graph, argument, result
