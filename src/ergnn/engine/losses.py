"""Losses as a function of parameters: the interface that training, curvature and every method use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vjp

from ergnn.errors import InputError
from ergnn.nn.examples import Examples, cross_entropy

MASKED = -1e9
"""Score of an output that a head does not have (heads of unequal width are padded)."""

ParamDict = dict[str, Tensor]
Entry = Callable[[Tensor], Tensor]


class Objective(ABC):
    """The losses of a set of examples as a function of parameters.

    Attributes:
        examples: of each model, one set after another.
        targets, weights: of the examples, all models' one after another.
        heads: the heads in use.
        dropout_sites: how many dropout keys a forward pass uses.
        recordable: whether a forward pass never waits for a GPU, so that it can be recorded as a CUDA graph.
    """

    examples: list[Examples]
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
    def batch(self, index: Tensor, weights: Tensor | None = None, key: int | None = None) -> Objective:
        """Some of the examples, by position, of one model: the same parameters, other weights where given.

        Args:
            key: key of the sampled neighbors, if neighbors are sampled.
        """

    @abstractmethod
    def by_name(self, params: ParamDict) -> ParamDict:
        """Parameters, or anything of their shape, of one model under the names and in the shapes of its own."""

    @abstractmethod
    def from_names(self, values: ParamDict) -> ParamDict:
        """The inverse of :meth:`by_name`; what has no value is 0."""

    def buffers(self) -> ParamDict:
        """The model's tensors that are no parameters but change in training, e.g. running means; the live ones."""
        return {}

    def gradient_sums(self, params: ParamDict, entry: Entry = torch.square) -> ParamDict:
        """``Σ_i (∇ℓ_i)²``, entry by entry, of single examples' gradients (in evaluation, without weights).

        Args:
            entry: applied to each entry instead of the square, e.g. :func:`torch.abs`; of a product, it must be the
                product of what it is of the factors.
        """
        losses, pull = vjp(self.losses, params)[:2]
        total = {name: torch.zeros_like(value) for name, value in params.items()}
        for i in range(losses.numel()):
            one = torch.zeros_like(losses)
            one[i] = 1.0
            for name, value in pull(one)[0].items():
                total[name] += entry(value)
        return total

    @property
    def has_default_loss(self) -> bool:
        """Whether the loss of every example is cross-entropy."""
        return all(part.loss is cross_entropy for part in self.examples)

    def loss(self, logits: Tensor) -> Tensor:
        """The loss of each example, ``[n]``, given all scores."""
        if self.has_default_loss:
            return cross_entropy(logits, self.targets, {})
        parts = logits.split([len(part) for part in self.examples])
        return torch.cat([part.losses(own) for part, own in zip(self.examples, parts, strict=True)])

    def losses(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        """The loss of each example, ``[n]``, given parameters."""
        return self.loss(self.logits(params, keys))

    def model_losses(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        """``Σ weight · loss`` of each model's examples, ``[models]``."""
        losses = self.weights * self.losses(params, keys)
        if len(self.examples) == 1:
            return losses.sum().view(1)
        return torch.stack([part.sum() for part in losses.split([len(part) for part in self.examples])])


def places(heads: list[int], used: Tensor) -> Tensor:
    """Where each head stands in ``heads`` (ascending)."""
    known = used.new_tensor(heads)
    place = torch.searchsorted(known, used.contiguous()).clamp(max=len(heads) - 1)
    wrong = used[known[place] != used]
    if wrong.numel():
        raise InputError(f"examples are scored by head {int(wrong[0])}; the heads in use are {heads}")
    return place
