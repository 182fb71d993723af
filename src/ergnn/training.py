"""Minimise a weighted sum of losses: the one training loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ergnn.errors import InputError, UnknownNameError
from ergnn.nn.dropout import dropout_keys
from ergnn.nn.objective import Objective

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@dataclass(frozen=True)
class Training:
    """How a task is learnt.

    Args:
        epochs: full-batch steps a task.
        lr: learning rate.
        weight_decay: of ``adam`` and ``sgd`` coupled (an L2 term in the gradient), of ``adamw`` decoupled.
        optimizer: ``adam``, ``adamw`` or ``sgd``; its state starts afresh with every task.
    """

    epochs: int = 200
    lr: float = 0.005
    weight_decay: float = 0.0
    optimizer: str = "adam"

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise UnknownNameError("optimizer", self.optimizer, OPTIMIZERS)
        if self.epochs < 1:
            raise InputError(f"epochs is {self.epochs}; at least 1 is needed")
        if not self.lr > 0:
            raise InputError(f"lr is {self.lr}; it must be above 0")
        if not self.weight_decay >= 0:
            raise InputError(f"weight_decay is {self.weight_decay}; it must be 0 or more")

    @property
    def l2(self) -> float:
        """λ of the term λ/2 ‖θ‖² that is part of the minimised loss (a decoupled decay is not)."""
        return 0.0 if self.optimizer == "adamw" else self.weight_decay


def train(
    objective: Objective,
    training: Training,
    seeds: list[int],
    task: int,
    on_epoch: Callable[[], None] | None = None,
) -> None:
    """Minimise ``Σ weight · loss`` from the models' present parameters, and write the result into them.

    Models that stand side by side share no parameter, so that the gradient of the total is each one's own.

    Args:
        seeds: one a model; with the task's number they decide the dropout masks.
    """
    params = {name: value.requires_grad_() for name, value in objective.parameters().items()}
    optimizer = OPTIMIZERS[training.optimizer](
        list(params.values()), lr=training.lr, weight_decay=training.weight_decay, fused=True
    )
    device = objective.targets.device
    keys = dropout_keys(seeds, task, training.epochs, objective.dropout_sites, device)
    for epoch in range(training.epochs):
        optimizer.zero_grad()
        loss = (objective.weights * objective.losses(params, keys[epoch])).sum()
        loss.backward()
        optimizer.step()
        if on_epoch is not None:
            on_epoch()
    objective.write_back(params)
