"""Each rank's share of a step, and the sum over all ranks.

Rank r of R computes the examples r, r + R, r + 2R, … of a batch. With the same θ on all ranks,

    ∇ Σ_i w_i ℓ_i(θ) = Σ_r ∇ Σ_{i ∈ share r} w_i ℓ_i(θ):

each rank computes the gradient of its share, and their sum is the gradient of the batch, for any weights.
DistributedDataParallel averages over ranks, so the loss of a share is multiplied by R. Parameters then equal those of a
single process up to rounding, except for dropout: each rank draws its own masks.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ergnn.engine.distributed.ranks import Ranks, current_ranks
from ergnn.engine.losses import Objective, ParamDict
from ergnn.engine.plain import PlainObjective

_MASK_STEP = 0x9E3779B9


class SingleProcess:
    """Training in a single process, which computes every example."""

    def parameters(self, objective: Objective) -> ParamDict:
        """Return the trained parameters, as leaf tensors."""
        return {name: value.requires_grad_() for name, value in objective.parameters().items()}

    def share(self, objective: Objective) -> Objective:
        """Return the examples of an objective that this rank computes."""
        return objective

    def pick(self, index: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Return this rank's positions and weights of a batch."""
        return index, weights

    def loss(self, batch: Objective, params: ParamDict, keys: Tensor) -> Tensor:
        """Compute ``Σ weight · loss`` of a share, per model ``[models]``; the sum has the gradient of the batch."""
        return batch.model_losses(params, keys)


class ProcessGroup(SingleProcess):
    """Training of one task as one of several ranks."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._shared: DistributedDataParallel | None = None

    def parameters(self, objective: Objective) -> ParamDict:
        module = _ShareLoss(objective.parameters(), self.ranks.size)
        # a module on the whole graph may not use every head in every share
        partly = isinstance(objective, PlainObjective)
        self._shared = DistributedDataParallel(module, find_unused_parameters=partly)
        return module.named()

    def share(self, objective: Objective) -> Objective:
        every = torch.arange(objective.weights.numel(), device=objective.weights.device)
        return objective.batch(*self.pick(every, objective.weights))

    def pick(self, index: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        rank, size = self.ranks.rank, self.ranks.size
        if index.numel() <= rank:  # no example for this rank, which must still take part in the step
            return index[:1], torch.zeros_like(weights[:1])
        return index[rank::size], weights[rank::size]

    def loss(self, batch: Objective, params: ParamDict, keys: Tensor) -> Tensor:
        assert self._shared is not None
        mask = (self.ranks.rank * _MASK_STEP + 2**31) % 2**32 - 2**31
        return self._shared(batch, keys.bitwise_xor(mask))


def process_group() -> SingleProcess:
    """Return the process group of this process, or a single process."""
    ranks = current_ranks()
    return SingleProcess() if ranks is None else ProcessGroup(ranks)


class _ShareLoss(nn.Module):
    """The loss of a share as a module, for DistributedDataParallel."""

    def __init__(self, params: ParamDict, size: int) -> None:
        super().__init__()
        self.names, self.size = list(params), size
        self.values = nn.ParameterList(nn.Parameter(value) for value in params.values())

    def named(self) -> ParamDict:
        return dict(zip(self.names, self.values, strict=True))

    def forward(self, batch: Objective, keys: Tensor) -> Tensor:
        return self.size * batch.model_losses(self.named(), keys)
