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
"""Below as many features and edges, one thread is as fast as several, and much faster on a busy machine."""

_threads_are_set: ContextVar[bool] = ContextVar("threads_are_set", default=False)


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
    _threads_are_set.set(True)
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
        stored = sum((graph.x.values() if graph.is_sparse else graph.x).numel() + graph.num_edges for graph in graphs)
        count = 1 if stored < SMALL_WORK and not _threads_are_set.get() else before
    elif count < 1:
        raise InputError(f"threads is {count}; it must be 1 or more")
    token = _threads_are_set.set(True)
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _threads_are_set.reset(token)


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
