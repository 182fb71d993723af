"""Recording of work on a GPU as CUDA graphs, whose launches take less time than those from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


_STREAMS: dict[int, torch.cuda.Stream] = {}
"""Device → the stream that records; each stream that runs dense products keeps a workspace of its own."""


def recording_stream() -> torch.cuda.Stream:
    """Return the stream of the current device that :func:`record` uses."""
    device = torch.cuda.current_device()
    if device not in _STREAMS:
        _STREAMS[device] = torch.cuda.Stream()
    return _STREAMS[device]


def record(call: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Run ``call`` once, which compiles kernels, then record it; return the graph and the tensors that it writes.

    The graph does not keep the tensors that it reads. Derivatives run on the stream of their forward pass, so if
    ``call`` does not run the forward pass, that must have run on :func:`recording_stream`.
    """
    current, stream = torch.cuda.current_stream(), recording_stream()
    stream.wait_stream(current)
    if torch.cuda.mem_get_info()[0] < torch.cuda.memory_reserved():
        torch.cuda.empty_cache()  # a graph has memory of its own and cannot use cached blocks
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        call()
        torch.cuda.synchronize()
        graph.capture_begin()
        try:
            result = call()
        finally:
            graph.capture_end()
    current.wait_stream(stream)
    return graph, result
