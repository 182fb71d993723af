"""Recording of work on a GPU as CUDA graphs, whose launches take less time than those from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


def record(call: Callable[[], Result]) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Run ``call`` once, which compiles kernels, then record it; return the graph and the tensors that it writes.

    Derivatives run on the stream of their forward pass, so both must be recorded on one stream: either ``call`` runs
    both, or the forward pass and this function run under the same ``torch.cuda.stream``.
    """
    current = torch.cuda.current_stream()
    stream = torch.cuda.Stream() if current == torch.cuda.default_stream() else current
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
