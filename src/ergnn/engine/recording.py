"""Recording of work on a GPU as CUDA graphs, whose launches take less time than those from Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import torch

Result = TypeVar("Result")


@cache
def side_stream(device: torch.device, number: int = 0) -> torch.cuda.Stream:
    """Return a GPU stream; each has a workspace for matrix products, so that they are used again."""
    return torch.cuda.Stream(device)


def record(call: Callable[[], Result], stream: torch.cuda.Stream) -> tuple[torch.cuda.CUDAGraph, Result]:
    """Run ``call`` once, which also compiles kernels, then record it; return the graph and what the recording returned.

    The graph does not keep the tensors that it reads. Derivatives run on the stream of their forward pass, so if
    ``call`` does not run the forward pass, that must have run on the same ``stream``.
    """
    current = torch.cuda.current_stream(stream.device)
    stream.wait_stream(current)
    if torch.cuda.mem_get_info(stream.device)[0] < torch.cuda.memory_reserved(stream.device):
        torch.cuda.empty_cache()  # a graph has memory of its own and cannot use cached blocks
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        call()
        graph.capture_begin()
        try:
            result = call()
        finally:
            graph.capture_end()
    current.wait_stream(stream)
    return graph, result
