"""Gradient norm: the nodes whose loss changes the model most."""

from __future__ import annotations

import torch
from torch import Tensor

from ergnn.engine.objective import make_objective
from ergnn.replay.selectors import SELECTORS
from ergnn.replay.selectors.base import SelectionContext, Selector

CHUNK = 64
"""Examples per joint receptive field."""


@SELECTORS.register("gradient-norm", help="largest norm of the gradient of the node's loss (GraNd)")
class GradientNorm(Selector):
    """Nodes with the largest ``‖∇_θ ℓ_v‖`` after training, over all parameters (GraNd, Paul et al., 2021)."""

    def score(self, context: SelectionContext) -> Tensor:
        examples, norms = context.examples("train"), list[Tensor]()
        for index in torch.arange(len(examples), device=examples.nodes.device).split(CHUNK):
            objective = make_objective([context.model], [examples[index]])
            params = {name: value.requires_grad_() for name, value in objective.parameters().items()}
            with torch.enable_grad():
                losses = objective.losses(params)
            for loss in losses:
                found = torch.autograd.grad(loss, list(params.values()), retain_graph=True, allow_unused=True)
                norms.append(torch.stack([part.double().square().sum() for part in found if part is not None]).sum())
        return torch.stack(norms).sqrt()
