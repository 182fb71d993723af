"""Losses as a function of parameters: what training, curvature and every method are written against."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vjp

from ergnn.errors import InputError

MASKED = -1e9
"""Score of an output that a head does not have (heads of unequal width are padded)."""

ParamDict = dict[str, Tensor]


class Objective(ABC):
    """Cross-entropy of a set of examples as a function of parameters.

    Attributes:
        targets, weights: of the examples, all models' one after another.
        heads: the heads in use.
        dropout_sites: how many dropout keys a forward pass uses.
        recordable: whether a forward pass never waits for a GPU, so that it can be recorded as a CUDA graph.
    """

    targets: Tensor
    weights: Tensor
    heads: list[int]
    dropout_sites: int = 1
    recordable: bool = False

    @abstractmethod
    def parameters(self) -> ParamDict:
        """A copy of the parameters that the examples' scores depend on."""

    @abstractmethod
    def write_back(self, params: ParamDict) -> None:
        """Copy parameters into the models."""

    @abstractmethod
    def logits(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        """Scores ``[n, outputs]``; ``keys`` are dropout keys ``[sites, models]``, None is evaluation."""

    @abstractmethod
    def batch(self, index: Tensor, weights: Tensor | None = None) -> Objective:
        """Some of the examples, by position, of one model: the same parameters, other weights where given."""

    @abstractmethod
    def by_name(self, params: ParamDict) -> ParamDict:
        """Parameters, or anything of their shape, of one model under the names and in the shapes of its own."""

    @abstractmethod
    def from_names(self, values: ParamDict) -> ParamDict:
        """The inverse of :meth:`by_name`; what has no value is 0."""

    def squared_gradients(self, params: ParamDict) -> ParamDict:
        """``Σ_i (∇ℓ_i)²``, entry by entry, of single examples' gradients (in evaluation, without weights)."""
        losses, pull = vjp(self.losses, params)[:2]
        total = {name: torch.zeros_like(value) for name, value in params.items()}
        for one in torch.eye(losses.numel(), dtype=losses.dtype, device=losses.device):
            for name, value in pull(one)[0].items():
                total[name] += value.square()
        return total

    def losses(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        """Cross-entropy of each example, ``[n]`` (one term of Eq. 1 a node)."""
        return F.cross_entropy(self.logits(params, keys), self.targets, reduction="none")


def places(heads: list[int], used: Tensor) -> Tensor:
    """Where each head stands in ``heads`` (ascending)."""
    known = used.new_tensor(heads)
    place = torch.searchsorted(known, used.contiguous()).clamp(max=len(heads) - 1)
    wrong = used[known[place] != used]
    if wrong.numel():
        raise InputError(f"examples are scored by head {int(wrong[0])}; the heads in use are {heads}")
    return place
