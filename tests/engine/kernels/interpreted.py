"""Run all checks of the kernels on a CPU in Triton's interpreter; a test starts this in a separate process."""

import torch

from engine.kernels.checks import PROJECTIONS, check_attention, check_dropped, check_projection, check_sums
from ergnn.engine import kernels

QUICK = ("GAT's last layer", "rows without links", "no links at all", "no links but each row's own")
"""The interpreter takes minutes for the others; they run on GPUs."""

if __name__ == "__main__":
    torch.set_num_threads(1)
    kernels.ON_CPU = True
    check_dropped("cpu")
    for sizes, features, outputs, probability in PROJECTIONS:
        for sparse in (False, True):
            check_projection("cpu", sizes, features, outputs, probability, sparse)
    for most, p, width in ((kernels.SEGMENT, 0.0, 70), (5, 0.6, 6)):
        kernels.SEGMENT = most
        for name in QUICK:
            check_sums(name, width, torch.float32, "cpu", 1e-5)
            check_attention(name, p, torch.float32, "cpu", 1e-4)
