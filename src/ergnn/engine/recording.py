"""Recording of work on a GPU as CUDA graphs, whose launches take less time than those from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

import torch
from torch import Tensor


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
