"""One run on several processes, GPUs or machines: each *rank* computes its share of every batch.

``torchrun --nproc-per-node 2 -m ergnn run …`` starts the ranks and identifies each by environment variables. All ranks
hold the graph and take the same steps; they differ only in the examples of a batch that they compute. Gradients are
summed over the ranks, so a step is the same as in a single process.
"""

from ergnn.engine.distributed.agreement import broadcast, check_agreement, digest, sum_over_ranks
from ergnn.engine.distributed.ranks import Ranks, RanksError, current_ranks, joined, launched, launched_first
from ergnn.engine.distributed.sharing import ProcessGroup, SingleProcess, process_group

__all__ = [
    "ProcessGroup",
    "Ranks",
    "RanksError",
    "SingleProcess",
    "broadcast",
    "check_agreement",
    "current_ranks",
    "digest",
    "joined",
    "launched",
    "launched_first",
    "process_group",
    "sum_over_ranks",
]
