"""Losses over sampled neighbors, sampled again for each batch and key."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ergnn.engine.field import make_field
from ergnn.engine.losses import ParamDict
from ergnn.engine.objective import FieldObjective
from ergnn.engine.sampling import Sampling
from ergnn.nn.backbones import Backbone
from ergnn.nn.examples import Examples


class SampledObjective(FieldObjective):
    """Objective of one model on sampled neighbors; fields are built per batch, never for all examples at once.

    Args:
        sampling: number of neighbors to sample.
        heads: as for :class:`FieldObjective`.
        key: key for sampling if all examples are scored at once.
    """

    def __init__(
        self, model: Backbone, examples: Examples, sampling: Sampling, heads: list[int] | None = None, key: int = 0
    ) -> None:
        sampling.check(model)
        heads = torch.unique(examples.heads).tolist() if heads is None else heads
        none = examples[examples.nodes.new_empty(0)]
        super().__init__([model], [none], heads, partial(make_field, sampling=sampling))
        self.examples = [examples]
        vars(self).pop("joint_extras", None)  # was that of no examples
        self.targets, self.weights = examples.targets, examples.weights
        self.sampling, self.key = sampling, key

    def batch(self, index: Tensor, weights: Tensor | None = None, key: int | None = None) -> FieldObjective:
        """Return the objective of some of the examples, by position; ``key`` determines the sampled neighbors."""
        part = self.examples[0][index]
        part = part if weights is None else part.weighted(weights)
        make = partial(make_field, sampling=self.sampling, key=self.key if key is None else key)
        return FieldObjective([self._single_model], [part], self.heads, make)

    def logits(self, params: ParamDict, keys: Tensor | None = None) -> Tensor:
        every = torch.arange(len(self.examples[0]), device=self.targets.device)
        return self.batch(every).logits(params, keys)
