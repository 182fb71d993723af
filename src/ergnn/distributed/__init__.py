"""One run on several processes, GPUs or machines: each *rank* takes its share of every batch.

``torchrun --nproc-per-node 2 -m ergnn run …`` starts the ranks and tells each, by its environment, which one it is.
All of them hold the graph and make the same steps; they differ only in which examples of a batch they compute.
Gradients are added up over the ranks, so that a step is the one that a single process would have made.
"""

from ergnn.distributed.agreement import check_agreement, digest, from_first
from ergnn.distributed.ranks import Ranks, RanksError, current_ranks, joined, launched, launched_first
from ergnn.distributed.sharing import ProcessGroup, SingleProcess, process_group

__all__ = [
    "ProcessGroup",
    "Ranks",
    "RanksError",
    "SingleProcess",
    "check_agreement",
    "current_ranks",
    "digest",
    "from_first",
    "joined",
    "launched",
    "launched_first",
    "process_group",
]
