"""All checks with the kernels on a CPU, in Triton's interpreter; run by a test, in a process of its own."""

from __future__ import annotations

import torch

from ergnn.nn.kernels import device, links, triton_gather
from nn.kernels.cases import SHAPES
from nn.kernels.checks import check_attention, check_dropped, check_sums

if __name__ == "__main__":
    torch.set_num_threads(1)
    device.ON_CPU = True
    check_dropped("cpu")
    for cache, most in ((triton_gather.CACHE, links.SEGMENT), (0, 5)):
        triton_gather.CACHE, links.SEGMENT = cache, most
        for name in SHAPES:
            check_sums(name, 6, torch.float32, "cpu", 1e-5)
            check_sums(name, 70, torch.float32, "cpu", 1e-5)
            for p in (0.0, 0.6):
                check_attention(name, p, torch.float32, "cpu", 1e-4)
